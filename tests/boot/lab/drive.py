"""A config drive with the contents nova gives it, as an ISO, FAT or ext4 image."""

import json
import os
import shutil
import subprocess
from pathlib import Path

# The version directories nova writes, oldest first, and the first one that holds each document.
OPENSTACK = ["2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15", "2016-06-30", "2016-10-06",
             "2017-02-22", "2018-08-27", "2020-10-14", "latest"]
SINCE = {"meta_data.json": "2012-08-10", "user_data": "2012-08-10", "vendor_data.json": "2013-10-17",
         "network_data.json": "2015-10-15", "vendor_data2.json": "2016-10-06"}
EC2 = ["2009-04-04", "latest"]


def write_tree(tree, documents, texts, key):
    """Lay out `documents` (a folder) under `tree` as nova does, or flat for NoCloud (its folder nocloud/).

    `texts` replaces the text of documents by name; `key` replaces @SSH_KEY@ in them.
    """
    shutil.rmtree(tree, ignore_errors=True)
    text = lambda path: path.read_text().replace("@SSH_KEY@", key)
    if (documents / "nocloud").is_dir():
        tree.mkdir(parents=True)
        found = {path.name: text(path) for path in (documents / "nocloud").iterdir()} | texts
        for name, body in found.items():
            (tree / name).write_text(body)
        return
    found = {name: text(documents / name) for name in SINCE if (documents / name).exists()} | texts
    for version in OPENSTACK:
        folder = tree / "openstack" / version
        folder.mkdir(parents=True)
        for name, body in found.items():
            if SINCE[name] <= version:
                (folder / name).write_text(body)
    if (documents / "content").is_dir():
        shutil.copytree(documents / "content", tree / "openstack" / "content")
    for version in EC2:
        folder = tree / "ec2" / version
        folder.mkdir(parents=True)
        (folder / "meta-data.json").write_text(json.dumps({"instance-id": "i-00000001", "hostname": "ec2-name"}))
        if "user_data" in found:
            (folder / "user-data").write_text(found["user_data"])


def write_files(tree, files):
    """Lay out texts by path under `tree`."""
    shutil.rmtree(tree, ignore_errors=True)
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)


def make_image(tree, image, kind, label, partition):
    """Write `tree` to `image` as a filesystem of `kind` (iso, vfat, ext4), as the first partition of a disk if asked."""
    image.unlink(missing_ok=True)
    run = lambda *argv: subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
    if kind == "iso":
        # nova's own call; xorriso has the same options under a name of its own.
        maker = next((name for name in ("genisoimage", "xorrisofs") if shutil.which(name)), "genisoimage")
        run(maker, "-quiet", "-o", image, "-ldots", "-allow-lowercase", "-allow-multidot", "-l",
            "-publisher", "boot test", "-J", "-r", "-V", label, tree)
    elif kind == "vfat":
        # nova's size; a disk of 64 MiB gets a FAT16.
        _sized(image, 64)
        run("mkfs.vfat", "-n", label, image)
        run("mcopy", "-s", "-i", image, *sorted(tree.iterdir()), "::/")
    elif kind == "ext4":
        _sized(image, 32)
        run("mkfs.ext4", "-q", "-F", "-L", label, "-d", tree, image)
    else:
        raise ValueError(f"no such drive format: {kind}")
    if partition:
        _into_partition(image)


def _sized(path, mebibytes):
    with open(path, "wb") as file:
        file.truncate(mebibytes << 20)


def _into_partition(image):
    """Turn a filesystem image into a disk with that filesystem in its first partition (MBR)."""
    disk = image.with_suffix(".disk")
    start, sectors = 2048, (os.path.getsize(image) + 511) // 512
    entry = bytes([0, 0, 0, 0, 0x0C, 0, 0, 0]) + start.to_bytes(4, "little") + sectors.to_bytes(4, "little")
    with open(disk, "wb") as out:
        out.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        out.seek(start * 512)
        out.write(Path(image).read_bytes())
        out.truncate((start + sectors) * 512)
    disk.rename(image)
