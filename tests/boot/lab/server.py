"""A root that a server has: a disk of NBD's or iSCSI's or a folder of NFS's on the machine's own network, or a folder of virtiofs;
and the Debian tree whose initramfs tools can boot all but the last.
"""

import contextlib
import os
import socket
import subprocess
import time
from dataclasses import dataclass, field

from . import images

# Where a machine finds its server, on QEMU's own network, which leads nowhere else and leases 10.0.2.15.
ADDRESS = "10.0.2.100"
PORTS = {"nbd": 10809, "nfs": 2049, "iscsi": 3260}
TARGET = "iqn.2026-11.test.server:root"
# What the kernel command line says of each.
DHCP = "ip=dhcp rd.neednet=1"
CMDLINE = {
    "nbd": f"root=nbd:{ADDRESS}:{PORTS['nbd']}:ext4 {DHCP}",
    "nfs": f"root=nfs4:{ADDRESS}:/root {DHCP} rw",
    "iscsi": f"root=LABEL=root netroot=iscsi:{ADDRESS}::{PORTS['iscsi']}:1:{TARGET} "
             f"rd.iscsi.initiator=iqn.2026-11.test.machine:one {DHCP}",
    "virtiofs": "root=root rootfstype=virtiofs",
}
VIRTIOFSD = next((path for path in ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"] if os.access(path, os.X_OK)), "virtiofsd")
# What each needs on this machine: a program, and its package.
NEEDED = {
    "nbd": {"qemu-nbd": "qemu-utils", "socat": "socat"},
    "nfs": {"ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs", "socat": "socat"},
    "iscsi": {"tgtd": "tgt", "tgtadm": "tgt", "socat": "socat", "ip": "iproute2"},
    "virtiofs": {VIRTIOFSD: "virtiofsd"},
}
# A server of NFS 4 alone, for a folder in which root is root.
GANESHA = """
NFS_Core_Param {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; RecoveryBackend = fs_ng; RecoveryRoot = "{state}"; Only_Numeric_Owners = true; Allow_Numeric_Owners = true; }}
EXPORT {{ Export_Id = 1; Path = "{root}"; Pseudo = "/root"; Access_Type = RW; Squash = No_root_squash; SecType = sys;
    Transports = TCP; FSAL {{ Name = VFS; }} }}
"""
# A server of iSCSI that has the address $1.
ISCSI = 'ip link set lo up; ip address add "$1/32" dev lo; exec tgtd --foreground --iscsi "portal=$2"'
# How long a server may take to start, in seconds.
START = 60


@dataclass
class Export:
    """How a machine reaches its root: words of QEMU's command line, which end the backend of its first NIC, and which follow."""
    nic: str = ""
    words: list = field(default_factory=list)


def why_not(kind):
    """What this machine lacks to serve a root so."""
    return images.missing(NEEDED[kind])


def trees():
    """The folder with a Debian tree builder/ that has the programs and initramfs modules of a network root."""
    return images.made_once("server", "the Debian tree of a root on a server", ["build-server-tree", "add-packages", "build-root"], images.trees())


@contextlib.contextmanager
def exported(kind, root, folder, memory):
    """Serve the root, an image or a folder, while a machine with so many MiB of memory runs. Gives the Export."""
    path = folder / "root.socket"
    if kind == "nbd":
        argv = ["qemu-nbd", "--persistent", "--shared=4", "--format=raw", "--cache=unsafe", f"--socket={path}", root]
        with running(argv, path.exists, folder):
            yield forwarded(kind, f"UNIX-CONNECT:{path}")
    elif kind == "nfs":
        port, state, config = free_port(), folder / "nfs", folder / "nfs.conf"
        state.mkdir(exist_ok=True)
        config.write_text(GANESHA.format(port=port, state=state, root=root))
        argv = ["ganesha.nfsd", "-F", "-f", config, "-L", "STDOUT", "-p", folder / "nfs.pid"]
        with running(argv, lambda: answers(port), folder):
            yield forwarded(kind, f"TCP:127.0.0.1:{port}")
    elif kind == "iscsi":
        # At the address by which the machine knows it, because the server tells its address to those who look for its targets.
        argv = ["unshare", "--net", "sh", "-euc", ISCSI, "sh", ADDRESS, f"{ADDRESS}:{PORTS[kind]}"]
        with running(argv, path.with_suffix(".socket.0").exists, folder, TGT_IPC_SOCKET=path) as process:
            for words in (["target", "--op", "new", "--targetname", TARGET], ["target", "--op", "bind", "--initiator-address", "ALL"],
                          ["logicalunit", "--op", "new", "--lun", "1", "--backing-store", root]):
                images.run("env", f"TGT_IPC_SOCKET={path}", "tgtadm", "--lld", "iscsi", "--tid", "1", "--mode", *words)
            inside = f"nsenter --net --target {process.pid} "
            yield forwarded(kind, f"TCP:{ADDRESS}:{PORTS[kind]}", inside)
    else:
        argv = [VIRTIOFSD, f"--socket-path={path}", "-o", f"source={root}", "-o", "cache=always", "-o", "xattr"]
        with running(argv, path.exists, folder):
            # The server reads and writes the machine's memory.
            yield Export(words=["-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on",
                                "-machine", "memory-backend=memory", "-chardev", f"socket,id=root,path={path}",
                                "-device", "vhost-user-fs-pci,chardev=root,tag=root"])


def forwarded(kind, to, inside=""):
    """A command for each connection of the machine to its server, with words before it."""
    return Export(nic=f",guestfwd=tcp:{ADDRESS}:{PORTS[kind]}-cmd:{inside}socat - {to}")


def free_port():
    """A port of this machine's loopback that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(port):
    """Whether something listens on a port of this machine's loopback."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(argv, ready, folder, **environment):
    """A server that runs, once `ready` says that it serves. Gives its process."""
    for old in folder.glob("root.socket*"):
        old.unlink()
    log = folder / "server.log"
    with open(log, "wb") as file:
        process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                   env=os.environ | {name: str(value) for name, value in environment.items()})
    try:
        end = time.monotonic() + START
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{argv[0]} does not serve the root: {log.read_text().strip()[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        # virtiofsd has ended with the machine.
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
