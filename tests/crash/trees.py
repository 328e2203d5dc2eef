"""Root trees: what is in them, and what differs, but for what is drawn at random or says when."""

import os
import re
import stat

# Logs and the boot's status say when, and their loss hurts nothing; the output of programs comes again where they run again. Only
# their presence, mode and owner are compared.
BY_PRESENCE = re.compile(r"^var/log/cloud-init(-output)?\.log$|^var/lib/cloud/data/(status|result)\.json$|/sem/|^run/prepivot/")
KEYS = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----.*?-----END OPENSSH PRIVATE KEY-----", re.S)
PUBLIC = re.compile(rb"((?:ssh|ecdsa)-[a-z0-9-]+) A{4}[A-Za-z0-9+/=]+")
HASH = re.compile(rb"\$(\w+)\$[^:\n\"]{20,}")
DAY = re.compile(rb"^([^:\n]+:[^:\n]*):\d{5}:", re.M)
TIME = re.compile(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s\"]*|\b\d{10}(?:\.\d+)?\b")


def shape(path, content):
    """The content without what is another each time: keys, salted hashes, days, times."""
    if BY_PRESENCE.search(path):
        return b""
    if path.startswith("etc/ssh/ssh_host_"):
        content = PUBLIC.sub(rb"\1 KEY", KEYS.sub(b"PRIVATE KEY", content))
    if path == "etc/shadow":
        content = DAY.sub(rb"\1:DAY:", HASH.sub(rb"$\1$HASH", content))
    if path.startswith(("var/lib/cloud/", "run/cloud-init/")):
        content = TIME.sub(b"TIME", HASH.sub(rb"$\1$HASH", content))
    return content


def read(root):
    """All that is in the tree: path to kind, mode, owner, extended attributes and shape."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            whole = os.path.join(folder, name)
            path = os.path.relpath(whole, root)
            info = os.lstat(whole)
            content = b""
            if stat.S_ISREG(info.st_mode):
                with open(whole, "rb") as file:
                    content = shape(path, file.read())
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(whole).encode()
            names = sorted(n for n in os.listxattr(whole, follow_symlinks=False) if n != "security.selinux")
            attributes = [(n, os.getxattr(whole, n, follow_symlinks=False)) for n in names]
            found[path] = (stat.filemode(info.st_mode), info.st_uid, info.st_gid, attributes, content)
    return found


def differences(expected, found):
    """One line for each path that differs."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        old, new = expected.get(path), found.get(path)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{path}: {'missing' if new is None else 'should not be there'}")
        elif old[:4] != new[:4]:
            lines.append(f"{path}: {new[:4]} instead of {old[:4]}")
        else:
            lines.append(f"{path}: another content: {new[4][:300]!r} instead of {old[4][:300]!r}")
    return lines
