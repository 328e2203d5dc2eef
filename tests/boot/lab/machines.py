"""Machines of another kind than this one: the Debian that they boot, and the program for them, with which their initramfs is made
(its framework is "image")."""

from dataclasses import dataclass

from . import images, vm


@dataclass
class Kind:
    cpu: str       # initramfs/build's name
    suite: str     # Debian's release
    kernel: str    # Debian's package
    needs: dict    # what runs it: a tool or a file, and Debian's package of it


# By Debian's name of the architecture; lab/vm.py has what QEMU emulates.
KINDS = {
    "arm64": Kind("aarch64", "bookworm", "linux-image-cloud-arm64",
                  {"qemu-system-aarch64": "qemu-system-arm", str(vm.UEFI_ARM64): "qemu-efi-aarch64"}),
    "riscv64": Kind("riscv64", "trixie", "linux-image-riscv64", {"qemu-system-riscv64": "qemu-system-misc"}),
}
# What makes their trees and their initramfs.
NEEDS = {"apt-get": "apt", "dpkg-deb": "dpkg", "modprobe": "kmod", "xz": "xz-utils"}
# What the initramfs has beside the program: modules of the root's disk that the kernel may have built in or not.
MODULES = ["virtio_pci", "virtio_blk", "ext4"]


def program(name):
    """What `initramfs/build --target` makes."""
    return images.PROJECT / f"target/prepivot-{KINDS[name].cpu}"


def why_not(name):
    """Why a machine of this kind cannot be booted here; None where it can."""
    if reason := images.missing(NEEDS | KINDS[name].needs):
        return reason
    if not program(name).exists():
        return f"there is no {program(name)}: run initramfs/build --target {KINDS[name].cpu}, which names what it lacks"
    return None


def trees(name):
    """The folder with the machine's tree root/ and its kernel."""
    kind = KINDS[name]
    return images.made_once(name, f"Debian's {name}", ["build-machine-tree", "build-root"],
                            name, kind.suite, kind.kernel, images.trees())


def initramfs(name, out):
    """Makes the initramfs of the program for that machine, with this one's tools."""
    modules = [word for module in MODULES for word in ("--module", module)]
    images.run(images.PROJECT / "initramfs/image", out, "--binary", program(name), "--root", trees(name) / "root", *modules,
               log=out.with_suffix(".log"))
