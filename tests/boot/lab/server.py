"""A root that a server has: a disk of NBD's on the machine's own network, or a folder of virtiofs; and the Debian tree whose
initramfs tools can boot the first.
"""

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field

from . import images

# Where a machine finds its server, on QEMU's own network, which leads nowhere else and leases 10.0.2.15.
ADDRESS = "10.0.2.100"
PORT = 10809
# What the kernel command line says of each.
CMDLINE = {
    "nbd": f"root=nbd:{ADDRESS}:{PORT}:ext4 ip=dhcp rd.neednet=1",
    "virtiofs": "root=root rootfstype=virtiofs",
}
VIRTIOFSD = next((path for path in ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"] if os.access(path, os.X_OK)), "virtiofsd")
# What each needs on this machine: a program, and its package.
NEEDED = {
    "nbd": {"qemu-nbd": "qemu-utils", "socat": "socat"},
    "virtiofs": {VIRTIOFSD: "virtiofsd"},
}
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
    return images.made_once("server", "the Debian tree of a root on a server", ["build-server-tree", "build-root"], images.trees())


@contextlib.contextmanager
def exported(kind, root, folder, memory):
    """Serve the root, an image or a folder, while a machine with so many MiB of memory runs. Gives the Export."""
    socket = folder / "root.socket"
    if kind == "nbd":
        argv = ["qemu-nbd", "--persistent", "--shared=4", "--format=raw", "--cache=unsafe", f"--socket={socket}", root]
        with running(argv, socket, folder):
            # A command for each connection of the machine to its server.
            yield Export(nic=f",guestfwd=tcp:{ADDRESS}:{PORT}-cmd:socat - UNIX-CONNECT:{socket}")
    else:
        argv = [VIRTIOFSD, f"--socket-path={socket}", "-o", f"source={root}", "-o", "cache=always", "-o", "xattr"]
        with running(argv, socket, folder):
            # The server reads and writes the machine's memory.
            yield Export(words=["-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on",
                                "-machine", "memory-backend=memory", "-chardev", f"socket,id=root,path={socket}",
                                "-device", "vhost-user-fs-pci,chardev=root,tag=root"])


@contextlib.contextmanager
def running(argv, socket, folder):
    """A server that runs, once its socket is there."""
    socket.unlink(missing_ok=True)
    log = folder / "server.log"
    with open(log, "wb") as file:
        process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        end = time.monotonic() + START
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{argv[0]} does not serve the root: {log.read_text().strip()}")
            time.sleep(0.1)
        yield
    finally:
        # virtiofsd has ended with the machine.
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
