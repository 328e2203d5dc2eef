"""What the machines boot: root images and one initramfs per framework, made by the distribution's own tools."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# The folder of the boot tests, the project's, what is kept between runs, and the program under test.
BOOT = Path(__file__).resolve().parent.parent
PROJECT = BOOT.parent.parent
CACHE = Path(os.environ.get("PREPIVOT_CACHE", PROJECT / "target" / "boot-cache"))
PROGRAM = PROJECT / "target" / "prepivot"
# The release of Debian whose root, kernel and frameworks the machines have: build-root's own if it is empty.
SUITE = ""
# What debootstrap, apt and wget say where the mirror does not answer, and how long to wait before each further attempt, in seconds.
AWAY = re.compile(r"Failed getting release file|Couldn't download|Failed to fetch|Unable to fetch|Temporary failure"
                  r"|Could not (resolve|connect)|Unable to connect|Connection (failed|timed out|refused)")
WAITS = [15, 30, 60, 120, 240]
ROOT_MIB = {"systemd": 600, "installed": 600, "earlier": 600, "next": 600, "selinux": 700, "busybox": 64}

# Runs a script in a tree.
IN_TREE = 'mount -t proc proc "$1/proc"; chroot "$1" sh -eu -c "$2" sh "$3"'
# Labels one, by the policy that it has.
LABEL = "setfiles -F -e /proc /etc/selinux/default/contexts/files/file_contexts /"


class Skip(Exception):
    """This machine lacks something that the test needs; the text says what."""


def run(*argv, log=None):
    """Run a command; when it fails, say its last lines."""
    result = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace")
    if log:
        log.write_text(result.stdout)
    if result.returncode:
        tail = "\n    ".join(result.stdout.strip().splitlines()[-12:])
        raise RuntimeError(f"'{' '.join(str(a) for a in argv)}' ended with {result.returncode}:\n    {tail}")


def run_in(tree, script, argument="", log=None):
    """Run a script in a tree, with /proc; `argument` is its $1."""
    run("unshare", "--mount", "sh", "-eu", "-c", IN_TREE, "sh", tree, script, argument, log=log)


def require_tools():
    iso = "xorrisofs" if shutil.which("xorrisofs") else "genisoimage"
    needed = {"qemu-system-x86_64": "qemu-system-x86", "debootstrap": "debootstrap", "mkfs.ext4": "e2fsprogs",
              "debugfs": "e2fsprogs", iso: "genisoimage", "mkfs.vfat": "dosfstools", "mcopy": "mtools",
              "ssh-keygen": "openssh-client", "unshare": "util-linux", "cpio": "cpio"}
    if reason := missing(needed):
        raise Skip(reason)
    if os.geteuid():
        raise Skip("root is needed to make a Debian root (debootstrap, chroot)")


def missing(needed):
    """A reason to skip where this machine lacks what is `needed`: Debian's package for each program, or path of a file of data.
    None where it lacks nothing."""
    def is_there(name):
        return os.path.exists(name) if name.startswith("/") else shutil.which(name)
    packages = sorted({package for name, package in needed.items() if not is_there(name)})
    return f"packages are missing: {' '.join(packages)}" if packages else None


def trees():
    """The folder with the Debian trees root/ and builder/."""
    return made_once("debian", "a Debian root", ["build-root"])


def of_suite(name):
    """The name of a tree in the cache, which is another one for each release."""
    return f"{name}-{SUITE}" if SUITE else name


def next_tree():
    """The folder with the Debian tree root/ of the next release, whose systemd is newer."""
    return made_once("next", "a newer Debian root", ["build-next-root", "build-root"])


def selinux_tree():
    """The folder with the Debian tree root/ that has SELinux's policy."""
    return made_once("selinux", "a Debian root with SELinux", ["build-selinux-root", "add-packages", "build-root"], trees())


def earlier():
    """The folder of an earlier version of prepivot: its source, and its program in target/."""
    return made_once("earlier", "an earlier version of prepivot", ["build-earlier"])


def why_not_earlier():
    """Why the earlier version cannot be had here; None where it can."""
    commit = subprocess.run([BOOT / "build-earlier", "--commit"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    known = subprocess.run(["git", "-C", PROJECT, "cat-file", "-e", f"{commit}^{{commit}}"], stderr=subprocess.DEVNULL)
    return f"the history of this repository has no commit {commit} (git fetch --unshallow)" if known.returncode else None


def made_once(name, what, recipes, *given):
    """The folder of the cache that the first of `recipes` fills, called with `given` and the folder; made once for each content
    of all of them."""
    name = of_suite(name)
    digest = hashlib.sha256(b"".join((BOOT / recipe).read_bytes() for recipe in recipes)).hexdigest()
    folder = CACHE / f"{name}-{digest[:12]}"
    if not (folder / "done").exists():
        print(f"making {what} in {folder} (once) …", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        run_with_mirror(BOOT / recipes[0], *given, folder, log=folder.with_suffix(".log"))
        (folder / "done").write_text("")
    return folder


def run_with_mirror(*argv, log):
    """`run` of a command that begins anew each time it is called, again while the mirror does not answer."""
    for wait in [*WAITS, None]:
        try:
            return run(*argv, log=log)
        except RuntimeError as error:
            if wait is None or not AWAY.search(str(error)):
                raise
            print(f"the mirror does not answer; the next attempt is in {wait} s: {error}", flush=True)
            time.sleep(wait)


def kernel(trees_dir):
    return next((trees_dir / "builder" / "boot").glob("vmlinuz-*"))


def root_image(kind, trees_dir, out, source=None):
    """A root as an ext4 image, with the test's own unit in it.

    "systemd": Debian (or the tree `source`); "installed": the same with prepivot installed; "earlier": with an earlier version of
    it, and this one in /boot-test/this-version; "next": Debian's next release; "selinux": with SELinux's policy, and each file
    labelled by it; "busybox": no systemd, its own init.
    """
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        tree = Path(scratch) / "root"
        root_tree(kind, trees_dir, tree, source)
        mkfs(out, "root", ROOT_MIB[kind], tree)


def root_tree(kind, trees_dir, tree, source=None):
    """The same as a folder."""
    if kind == "busybox":
        run(BOOT / "build-busybox-root", trees_dir / "builder", tree)
    else:
        special = {"next": next_tree, "selinux": selinux_tree}
        source = source or (special[kind]() if kind in special else trees_dir) / "root"
        run("cp", "-a", "--reflink=auto", source, tree)
        if kind == "next":
            # The drivers of the kernel that it is booted with.
            run("cp", "-a", "--reflink=auto", trees_dir / "builder/lib/modules", tree / "usr/lib")
        unit = tree / "etc/systemd/system"
        shutil.copy(BOOT / "guest/check.service", unit)
        (unit / "multi-user.target.wants/check.service").symlink_to("/etc/systemd/system/check.service")
    if kind == "installed":
        install(tree)
    (tree / "boot-test").mkdir()
    if kind == "earlier":
        install(tree, earlier())
        install(tree / "boot-test/this-version")
    put_runner(tree / "boot-test")
    if kind == "selinux":
        run_in(tree, LABEL)


def put_runner(folder):
    """What runs the checks in a machine."""
    for name in ["run", "functions"]:
        shutil.copy(BOOT / "guest" / name, folder)


def mkfs(out, label, mebibytes, tree=None):
    """An ext4 image, with the contents of `tree` if one is given."""
    out.unlink(missing_ok=True)
    with open(out, "wb") as file:
        file.truncate(mebibytes << 20)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-L", label, *(["-d", tree] if tree else []), out)


def builder(trees_dir, out, version=None):
    """A tree as on the machine of someone who makes images: a Debian with kernel, frameworks and prepivot installed, or another
    `version` of it."""
    run("cp", "-a", "--reflink=auto", trees_dir / "builder", out)
    install(out, version)


def install(tree, version=None):
    """Install this version of prepivot into a tree, or that whose folder is `version`."""
    binary = version / "target/prepivot" if version else PROGRAM
    run((version or PROJECT) / "initramfs/install", "--root", tree, "--binary", binary)


def initramfs(framework, builder_dir, out):
    """Make the initramfs of `framework` in the builder tree."""
    run("unshare", "--mount", BOOT / "build-initramfs", framework, builder_dir, out, log=out.with_suffix(".log"))


def edit_root(image, add, remove, offset=0):
    """Copy the tree `add` into an ext4 image (owner root, modes kept), after removing the paths `remove`.

    `offset` is where in the image the file system begins, in bytes.
    """
    device = f"{image}?offset={offset}" if offset else image
    # A machine that was switched off leaves a journal, and it would be replayed over what is written here.
    subprocess.run(["e2fsck", "-fy", device], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    commands = [f"rm {path}" for path in remove]
    if add and add.is_dir():
        for path in sorted(add.rglob("*")):
            inside = "/" + str(path.relative_to(add))
            if path.is_symlink():
                commands += [f"rm {inside}", f"symlink {inside} {os.readlink(path)}"]
            elif path.is_dir():
                commands.append(f"mkdir {inside}")
            else:
                commands += [f"rm {inside}", f"write {path} {inside}"]
    script = image.with_suffix(".debugfs")
    script.write_text("\n".join(commands) + "\n")
    run("debugfs", "-w", "-f", script, device, log=image.with_suffix(".debugfs.log"))


def fill(image):
    """Leave no free block in an ext4 image: as many as it says are free go into one file."""
    stats = subprocess.run(["dumpe2fs", "-h", image], capture_output=True, text=True, check=True).stdout
    free = int(next(line.split(":")[1] for line in stats.splitlines() if line.startswith("Free blocks:")))
    script = image.with_suffix(".fill")
    script.write_text(f"write /dev/null /fill\nfallocate /fill 0 {free - 1}\n")
    run("debugfs", "-w", "-f", script, image)
