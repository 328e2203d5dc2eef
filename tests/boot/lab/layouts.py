"""Roots that are not one writable file system on one disk: folders on file systems of their own, images that can only be read, an
overlay over either, a deployment of ostree, a mirror; and the Debian tree whose initramfs tools can boot them.
"""

import shutil
import tempfile
from pathlib import Path

from . import disks, images

# Of the file systems of their own, in MiB.
SIZE = 128
SIZES = {"/usr": 448}
# Of a disk that has more than the root, in MiB.
WRITABLE = 1200
# An image cannot be changed after it was made: what a boot checks is on a disk of its own.
RUN = "#!/bin/sh\nmount LABEL=checks /boot-test && exec /boot-test/run\n"
# The disk of dm-verity's hashes.
HASHES = "c1f0a6de-52a0-4c0e-9a43-3f0f5b0d7a11"
# What the root's disk can be, beside ext4: how it is made in the builder tree, of the folder `root` of the one that is given. It
# leaves `image`, with `hashes` for a further disk, or `files` for an ext4 file system, and in `cmdline` what the kernel is given.
SQUASHFS = """
mksquashfs "$1/root" "$1/image" -noI -noD -noF -noX -no-progress
echo "root=/dev/vda rootfstype=squashfs" >"$1/cmdline"
"""
MAKE = {
    "squashfs": SQUASHFS,
    "erofs": """
mkfs.erofs "$1/image" "$1/root"
echo "root=/dev/vda rootfstype=erofs" >"$1/cmdline"
""",
    # An image at live-boot's place and at dracut's.
    "live": SQUASHFS + """
mkdir -p "$1/files/live" "$1/files/LiveOS"
mv "$1/image" "$1/files/live/filesystem.squashfs"
ln "$1/files/live/filesystem.squashfs" "$1/files/LiveOS/squashfs.img"
rm "$1/cmdline"
""",
    # The hashes are on a disk of their own: systemd-veritysetup finds them behind the image from version 254 on.
    "verity": SQUASHFS + f"""
veritysetup format --uuid {HASHES} "$1/image" "$1/hashes" >"$1/table"
hash=$(sed -n 's/^Root hash:[[:space:]]*//p' "$1/table")
echo "root=/dev/mapper/root rootfstype=squashfs roothash=$hash systemd.verity_root_data=/dev/vda" \\
    "systemd.verity_root_hash=/dev/disk/by-uuid/{HASHES}" >"$1/cmdline"
""",
    # The file system of a mirror, which `make` lays on two disks, with those of mdadm's own files that a running system needs.
    "md": f"""
cp --parents /sbin/mdadm /lib/udev/rules.d/6[34]-md-*.rules "$1/root"
truncate -s {images.ROOT_MIB["systemd"]}M "$1/image"
mkfs.ext4 -q -m 0 -L root -d "$1/root" "$1/image"
echo "rd.md.uuid={disks.MIRROR.hex}" >"$1/cmdline"
""",
    # What ostree's manual asks of a tree ("Adapting existing mainstream distributions"), with those of ostree's own files that
    # mount /var; and one deployment of it.
    "ostree": """
cd "$1/root"
for file in /lib/systemd/system-generators/ostree-system-generator /usr/lib/ostree/ostree-remount; do
    cp --no-clobber --parents "$file" $(ldd "$file" | sed -n 's|.* => \\(/[^ ]*\\).*|\\1|p') .
done
cp /lib/systemd/system/ostree-remount.service usr/lib/systemd/system
ln -s ../ostree-remount.service usr/lib/systemd/system/local-fs.target.wants
mv etc usr/etc
version=$(ls usr/lib/modules)
cp "/boot/vmlinuz-$version" "usr/lib/modules/$version/vmlinuz"
: >"usr/lib/modules/$version/initramfs.img"
rm -rf home root srv mnt media opt boot var dev usr/local
mkdir -p sysroot boot var dev
ln -s sysroot/ostree ostree
for name in home srv mnt media opt; do ln -s "var/$name" "$name"; done
ln -s var/roothome root
ln -s ../var/usrlocal usr/local
for name in home srv mnt media opt roothome usrlocal; do echo "d /var/$name 0755 root root -"; done >usr/lib/tmpfiles.d/ostree-var.conf
cd "$1"
mkdir files
ostree admin init-fs --modern files
ostree admin os-init debian --sysroot=files
ostree commit --repo=files/ostree/repo --branch=debian --tree=dir=root
ostree admin deploy --sysroot=files --os=debian debian
sed -n 's/^options.*\\(ostree=[^ ]*\\).*/rw \\1/p' files/boot/loader/entries/*.conf >cmdline
chattr -R -f -i files || true
""",
}


def trees():
    """The folder with a Debian tree builder/ that has the programs and initramfs modules of these layouts."""
    return images.made_once("layouts", "the Debian tree of layouts", ["build-layout-tree", "add-packages", "build-root"], images.trees())


def make(case, add, folder, lab):
    """The root's disk, and the disks of its folders that are file systems of their own: one for each of `own`, by label."""
    kind, root, others = case.get("format"), folder / "root.img", []
    # The tools for the formats are in the builder tree.
    builder = trees() / "builder" if kind else None
    with tempfile.TemporaryDirectory(dir=builder / "tmp" if kind else lab.work) as scratch:
        scratch = Path(scratch)
        tree = scratch / "root"
        images.root_tree(case.get("root", "systemd"), lab.trees, tree)
        if add.is_dir():
            images.run("cp", "-r", "--no-target-directory", add, tree)
        for path in sorted(case.get("own", []), reverse=True):
            others.insert(0, folder / f"{path.strip('/').replace('/', '-')}.img")
            own_disk(tree / path[1:], others[0], SIZES.get(path, SIZE))
        if not kind:
            images.mkfs(root, "root", images.ROOT_MIB["systemd"], tree)
            if case.get("disk") == "gpt-auto":
                disks.discoverable(root, {f"/{disk.stem}": disk for disk in others}, (tree / "etc/machine-id").read_text())
                others = []
            return root, others
        (tree / "boot-test/run").write_text(RUN)
        if kind == "folder":
            shutil.move(tree, folder / "root")
            return folder / "root", []
        images.run_in(builder, MAKE[kind], f"/tmp/{scratch.name}", log=folder / "format.log")
        if (scratch / "files").exists():
            images.mkfs(root, "live" if kind == "live" else "root", WRITABLE, scratch / "files")
        elif kind == "md":
            others.append(folder / "mirror.img")
            disks.mirrored(scratch / "image", [root, others[-1]])
        else:
            shutil.move(scratch / "image", root)
            if (scratch / "hashes").exists():
                others.append(folder / "hashes.img")
                shutil.move(scratch / "hashes", others[-1])
        if (scratch / "cmdline").exists():
            shutil.copy(scratch / "cmdline", root.with_suffix(".cmdline"))
    return root, others


def own_disk(place, disk, size):
    """Move what is in a folder of the tree onto a disk of its own. /etc keeps its fstab, by which it is found."""
    images.mkfs(disk, disk.stem, size, place)
    for inside in place.iterdir():
        if inside.name != "fstab":
            images.run("rm", "-rf", inside)


def cmdline(root):
    """What the kernel command line says of this root."""
    file = root.with_suffix(".cmdline")
    return file.read_text().strip() if file.exists() else ""
