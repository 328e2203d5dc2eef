"""Disks with the root in a partition, and on what may lie between the two.

GPT and MBR are written here, and the superblocks of a mirror. What only a kernel with the drivers can make, a machine makes once: it boots the ordinary root with
an empty disk for each of MADE, and copies itself onto them (guest/make-disks).
"""

import hashlib
import hmac
import shutil
import struct
import subprocess
import uuid

from . import images, vm

MIB = 1 << 20
# Where the root's partition begins.
START = 4 * MIB
# The root's partition is the last of its disk. MBR's is a logical one, behind a primary one.
TABLES = {
    "gpt": "label: gpt\nstart={start}, size={size}, type=L\n",
    "mbr": "label: dos\nstart=2048, size=2048, type=83\nstart=4096, size={extended}, type=5\nstart={start}, size={size}, type=83\n",
}
# The size of the others in MiB, and what the kernel command line says of each.
SIZE = 768
UUID = "7e9b6a1c-58c3-4d5e-9d0e-3c1f5a2b4d60"
MADE = {
    "lvm": "rd.lvm.lv=vg/root",
    "luks": f"rd.luks.name={UUID}=root rd.luks.key={UUID}=/boot-test.key",
    "btrfs": "rootfstype=btrfs",
    "xfs": "rootfstype=xfs",
}
KINDS = [*TABLES, *MADE, "gpt-auto"]
# Partitions by their types (The Discoverable Partitions Specification).
TYPES = {
    "/": uuid.UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"),
    "/home": uuid.UUID("933ac7e1-2eb4-4f13-b844-0e14e2aef915"),
    "/var": uuid.UUID("4d21b016-b534-45c2-a9fb-5c16e091fd2d"),
}
# The array that a mirror is, and where on its members the data begins.
MIRROR = uuid.UUID("2b0d3a54-6f0e-4e8a-8d55-0c6f6a3c9b11")
DATA = MIB


def table(image, kind, size):
    """Write a table with one partition of `size` bytes for the root into the image."""
    sectors = {"start": START // 512, "size": size // 512, "extended": (START + size) // 512 - 4096}
    with open(image, "r+b") as file:
        # Room for GPT's backup.
        file.truncate(START + size + MIB)
    subprocess.run(["sfdisk", "-q", image], input=TABLES[kind].format(**sectors), text=True, check=True,
                   stdout=subprocess.DEVNULL)


def partitioned(kind, root, out):
    """A disk with the ext4 image `root` in its last partition."""
    out.unlink(missing_ok=True)
    out.touch()
    table(out, kind, root.stat().st_size)
    images.run("dd", f"if={root}", f"of={out}", f"seek={START // MIB}", "bs=1M", "conv=notrunc,sparse")


def discoverable(root, others, machine_id):
    """Turns the root's image into a disk on which it and those of `others`, by mount point, are partitions of the mount points'
    types. That of /var has the UUID which the machine with this machine-id accepts."""
    own = hmac.digest(bytes.fromhex(machine_id.strip()), TYPES["/var"].bytes, "sha256")[:16]
    lines, images_, at = ["label: gpt"], {"/": root.rename(root.with_suffix(".fs")), **others}, START
    with open(root, "wb") as disk:
        for point, image in images_.items():
            size = image.stat().st_size
            lines.append(f"start={at // 512}, size={size // 512}, type={TYPES[point]}"
                         + (f", uuid={uuid.UUID(bytes=own, version=4)}" if point == "/var" else ""))
            images.run("dd", f"if={image}", f"of={root}", f"seek={at // MIB}", "bs=1M", "conv=notrunc,sparse")
            image.unlink()
            at += size
        # Room for GPT's backup.
        disk.truncate(at + MIB)
    subprocess.run(["sfdisk", "-q", root], input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.DEVNULL)


def mirrored(image, members):
    """Two disks, each with a partition that is one half of a RAID 1 with the image as its data (md(4), metadata 1.2)."""
    data = image.stat().st_size
    for number, member in enumerate(members):
        member.unlink(missing_ok=True)
        member.touch()
        table(member, "gpt", DATA + data)
        images.run("dd", f"if={image}", f"of={member}", f"seek={(START + DATA) // MIB}", "bs=1M", "conv=notrunc,sparse")
        with open(member, "r+b") as file:
            file.seek(START + 4096)
            file.write(superblock(number, data // 512))


def superblock(number, sectors):
    """The superblock of one of two members, clean, of so many sectors (struct mdp_superblock_1 of linux/raid/md_p.h)."""
    device = uuid.UUID(int=MIRROR.int + 1 + number).bytes
    block = bytearray(struct.pack(
        "<IIII16s32sQIIQIII4xQIIIIQQQQII16sBBHIQQQII32x2H",
        0xA92B4EFC, 1, 0, 0, MIRROR.bytes, b"root", 1, 1, 0, sectors, 0, 2, 0,
        0, 0, 0, 0, 0, DATA // 512, sectors, 8, 0, number, 0, device, 0, 0, 0, 0, 1, 1, 2**64 - 1, 0, 2, 0, 1))
    total = sum(word for word, in struct.iter_unpack("<I", block))
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF)
    return block


def trees():
    """The folder with the Debian trees that have the programs of LVM, LUKS, btrfs and XFS."""
    return images.made_once("disks", "the Debian trees of disks", ["build-disk-trees", "add-packages", "build-root"], images.trees())


def make(work, initramfs):
    """The disks that a machine makes, by kind. They are kept: nothing of the program under test is in them."""
    folder = trees()
    script = images.BOOT / "guest/make-disks"
    parts = [script, images.BOOT / "guest/check.service", images.BOOT / "guest/space.service", images.BOOT / "lab/disks.py"]
    done = folder / f"made-{hashlib.sha256(b''.join(part.read_bytes() for part in parts)).hexdigest()[:12]}"
    made = {kind: done / f"{kind}.img" for kind in MADE}
    if done.exists():
        return made
    print(f"making {', '.join(MADE)} in {done} (once) …", flush=True)
    fresh = work / "made"
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "guest/boot-test").mkdir(parents=True)
    root = fresh / "root.img"
    images.root_image("systemd", folder, root)
    shutil.copy(script, fresh / "guest/boot-test/checks")
    shutil.copy(images.BOOT / "guest/space.service", fresh / "guest/boot-test")
    unit = fresh / "guest/etc/systemd/system/check.service.d/copies.conf"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nTimeoutStartSec=infinity\n")
    images.edit_root(root, fresh / "guest", [])
    for kind in MADE:
        (fresh / f"{kind}.img").touch()
        table(fresh / f"{kind}.img", "gpt", (SIZE - 8) * MIB)
    machine = vm.Machine(kernel=images.kernel(images.trees()), initrd=initramfs, root=root, cmdline="cloud-init=disabled",
                         logs=fresh / "logs", disks=[fresh / f"{kind}.img" for kind in MADE], icount=False, time_limit=3000)
    outcome = vm.boot(machine)
    if "CHECK end" not in outcome.checks or "CHECK FAIL" in outcome.checks:
        raise RuntimeError(f"the machine did not make the disks ({outcome.ended}): see {fresh / 'logs'}")
    shutil.rmtree(fresh / "guest")
    root.unlink()
    fresh.rename(done) if fresh.stat().st_dev == folder.stat().st_dev else shutil.move(fresh, done)
    return made
