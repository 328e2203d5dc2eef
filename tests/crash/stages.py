"""The stages of the real root, run in a tree as if it were one: in namespaces of their own, below a chroot, where each program of
the tree does nothing."""

import os
import re
import shutil
import subprocess

# In their order, and the arguments that run them.
STAGES = {
    "local": ["init", "--local"],
    "init": ["init"],
    "config": ["modules", "--mode", "config"],
    "final": ["modules", "--mode", "final"],
}
# What follows them where a device is added to the running system, whose seed is in the tree.
HOOK = ["devel", "hotplug-hook", "--subsystem=net"]
DEVICE, MAC, ADDRESS = "added0", "52:54:00:00:00:99", "10.9.0.2/24"
HOTPLUG = {
    "hotplug-enable": [*HOOK, "enable"],
    "hotplug": [*HOOK, "handle", f"--devpath=/devices/virtual/net/{DEVICE}", "--udevaction=add"],
}
# Programs that a tree gets beside its own: those that user-data makes stages run; and those of one family of distributions.
PROGRAMS = ["mount", "shutdown", "locale-gen", "localectl"]
OF_DEBIAN = ["apt-get", "apt-cache", "update-ca-certificates", "dpkg-query"]
# Where the program is in a tree: a folder on which it is mounted, with its libraries.
PLACE = ".program"
MOUNTED = f'mount --bind "$1" "$2/{PLACE}" && mount --bind /dev/null "$2/dev/null" && shift 2 && exec "$@"'
NAMESPACES = ["unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child"]


def unavailable():
    """Why stages cannot be run here; None where they can."""
    done = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no namespaces: {done.stderr.strip()}"


def prepare(folder, program):
    """Puts the program, its libraries, and a program that does nothing into a folder."""
    os.mkdir(folder)
    shutil.copy(program, os.path.join(folder, "prepivot"))
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"(/\S+) \(0x", needed):
        name = "loader" if "/ld-" in path else os.path.basename(path)
        shutil.copy(path, os.path.join(folder, name))
    source = os.path.join(folder, "nothing.rs")
    with open(source, "w", encoding="ascii") as file:
        file.write("fn main() {}\n")
    static = ["-C", "target-feature=+crt-static", "-C", "opt-level=z", "-C", "strip=symbols"]
    subprocess.run(["rustc", *static, "-o", os.path.join(folder, "nothing"), source], check=True)


def make_real_root(tree):
    """Makes a tree ready: what it has for programs, which are empty files, does nothing and succeeds."""
    os.mkdir(os.path.join(tree, PLACE))
    os.makedirs(os.path.join(tree, "dev"), exist_ok=True)
    with open(os.path.join(tree, "dev/null"), "a", encoding="ascii"):
        pass
    with open(os.path.join(tree, "usr/lib/os-release"), encoding="utf-8") as release:
        is_debian = re.search(r"^ID=(debian|ubuntu)$", release.read(), re.M)
    for name in PROGRAMS + (OF_DEBIAN if is_debian else []):
        with open(os.path.join(tree, "usr/bin", name), "a", encoding="ascii"):
            pass
    for folder in ("usr/bin", "usr/sbin"):
        for name in os.listdir(os.path.join(tree, folder)):
            path = os.path.join(tree, folder, name)
            if os.path.isfile(path) and os.path.getsize(path) == 0:
                os.unlink(path)
                os.symlink(f"/{PLACE}/nothing", path)


def add_device(tree, seed):
    """Adds a device, and the seed of a case as that of the image, which knows the device."""
    device, place = os.path.join(tree, "sys/class/net", DEVICE), os.path.join(tree, "var/lib/cloud/seed/nocloud")
    os.makedirs(device, exist_ok=True)
    with open(os.path.join(device, "address"), "w", encoding="ascii") as file:
        file.write(f"{MAC}\n")
    shutil.copytree(seed, place, dirs_exist_ok=True)
    with open(os.path.join(place, "network-config"), "w", encoding="ascii") as file:
        file.write(f"version: 2\nethernets: {{{DEVICE}: {{match: {{macaddress: '{MAC}'}}, addresses: [{ADDRESS}]}}}}\n")


def knows_device(tree):
    """Whether a file outside of the seed and the cache of the instance has the added device's address."""
    address = ADDRESS.partition("/")[0]
    grep = ["grep", "-rqsF", "--exclude-dir=cloud", "--exclude-dir=cloud-init", address, tree]
    return subprocess.run(grep, check=False).returncode == 0


def command(programs, tree, stage, tracer):
    """The command that runs a stage below the tracer."""
    loader = [f"/{PLACE}/loader", "--library-path", f"/{PLACE}"] if os.path.exists(os.path.join(programs, "loader")) else []
    inside = ["chroot", tree, *loader, f"/{PLACE}/prepivot", *(STAGES | HOTPLUG)[stage]]
    return [*NAMESPACES, "sh", "-c", MOUNTED, "sh", programs, tree, *tracer, *inside]
