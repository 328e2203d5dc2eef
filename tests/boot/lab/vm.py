"""One virtual machine: its QEMU command line, its logs, and its end."""

import contextlib
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import server

# A whole boot takes 30 to 60 s of emulation on an idle core; a busy host gets many times that.
TIME_LIMIT = 900
# The hardware address of a machine's first NIC; the others count up.
FIRST_MAC = 0x52_54_00_12_34_56
# What nova says about a machine through the firmware's tables, by the kernel's names.
NOVA = {"sys_vendor": "OpenStack Foundation", "product_name": "OpenStack Nova", "chassis_asset_tag": "OpenStack Nova"}
# Debian's package qemu-efi-aarch64.
UEFI_ARM64 = Path("/usr/share/qemu-efi-aarch64/QEMU_EFI.fd")
# Where the firmware's tables have it: the type of the table, and QEMU's name.
SMBIOS = {"bios_vendor": (0, "vendor"), "sys_vendor": (1, "manufacturer"), "product_name": (1, "product"),
          "product_serial": (1, "serial"), "product_uuid": (1, "uuid"), "product_family": (1, "family"),
          "board_serial": (2, "serial"), "chassis_asset_tag": (3, "asset")}


@dataclass
class Board:
    """What QEMU emulates, and its names in Linux."""
    qemu: list
    console: str         # the kernel's name of the first serial port
    cdrom: list          # QEMU's devices for a CD-ROM drive; the last takes the drive
    checks: list         # QEMU's device for what the checks say; empty: the second serial port


# The ports and drives that a PC has of old are on PCI on other machines.
VIRTIO = {"cdrom": ["virtio-scsi-pci", "scsi-cd"], "checks": ["virtio-serial-pci", "virtserialport,name=checks,chardev=checks"]}
PC = "amd64"
BOARDS = {
    PC: Board(["qemu-system-x86_64", "-machine", "pc", "-cpu", "max"], "ttyS0", ["ide-cd"], []),
    # With UEFI, for without it there are no SMBIOS tables.
    "arm64": Board(["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a57", "-bios", UEFI_ARM64], "ttyAMA0", **VIRTIO),
    "riscv64": Board(["qemu-system-riscv64", "-machine", "virt"], "ttyS0", **VIRTIO),
}


@dataclass
class Machine:
    kernel: Path
    initrd: Path
    cmdline: str
    root: Path
    logs: Path                                   # folder for console.log and checks.log
    drives: list = field(default_factory=list)   # images of config drives: (path, "cdrom" or "disk")
    unreadable: str = ""                         # text whose sector on the drives fails to be read
    late: str = ""                               # console text at which the drives are plugged in
    disks: list = field(default_factory=list)    # further disks
    dmi: dict = field(default_factory=dict)      # what the firmware says of the machine, by the kernel's names
    read_only_root: bool = False
    export: server.Export | None = None          # how the root is reached that is not on a disk of the machine
    writes: int = 0                              # how many writes a second the root's disk takes; 0: any number
    time_limit: int = TIME_LIMIT                 # seconds
    icount: bool = True   # the clock that counts instructions
    memory: int = 512
    board: str = PC       # of BOARDS
    tpm: Path | None = None   # folder for the state of a TPM; None: the machine has none
    # For each NIC a socket that takes and gives a frame in each datagram, or None: QEMU's own network, which leads nowhere.
    nics: list = field(default_factory=lambda: [None])


@dataclass
class Outcome:
    seconds: float
    console: str
    checks: str
    ended: str   # "off", "seen" (the awaited console text came) or "time"


def nova(uuid):
    """What the firmware of a machine of nova's says."""
    return NOVA | {"product_uuid": uuid}


def command(machine):
    board = BOARDS[machine.board]
    argv = [*board.qemu, "-accel", "tcg", "-m", str(machine.memory), "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", machine.kernel, "-initrd", machine.initrd,
            "-append", f"console={board.console} root=LABEL=root ro panic=-1 {machine.cmdline}".strip(),
            "-serial", f"file:{machine.logs / 'console.log'}", "-device", "virtio-rng-pci"]
    if board.checks:
        argv += ["-chardev", f"file,id=checks,path={machine.logs / 'checks.log'}", *devices(board.checks)]
    else:
        argv += ["-serial", f"file:{machine.logs / 'checks.log'}"]
    for number, socket_ in enumerate(machine.nics):
        backend = f"socket,fd={socket_.fileno()}" if socket_ else "user,restrict=on"
        if machine.export and not number:
            backend += machine.export.nic
        argv += ["-netdev", f"{backend},id=net{number}",
                 "-device", f"virtio-net-pci,netdev=net{number},mac={mac(number)},romfile="]
    if machine.icount:
        argv += ["-icount", "shift=0"]
    if machine.tpm:
        argv += ["-chardev", f"socket,id=tpm,path={machine.tpm / 'socket'}", "-tpmdev", "emulator,id=tpm,chardev=tpm",
                 "-device", "tpm-tis,tpmdev=tpm"]
    tables = {}
    for name, value in machine.dmi.items():
        table, word = SMBIOS[name]
        # A comma within a value is written twice.
        tables.setdefault(table, []).append(f"{word}={value.replace(',', ',,')}")
    for table, words in tables.items():
        argv += ["-smbios", f"type={table},{','.join(words)}"]
    read_only = "on" if machine.read_only_root else "off"
    slow = f",throttling.iops-write={machine.writes}" if machine.writes else ""
    if machine.export:
        argv += machine.export.words
    else:
        argv += ["-drive", f"if=virtio,format=raw,cache=unsafe,file={machine.root},readonly={read_only}{slow}"]
    for path in machine.disks:
        argv += ["-drive", f"if=virtio,format=raw,cache=unsafe,file={path}"]
    for number, (path, bus) in enumerate(machine.drives):
        file = f"file={failing(machine, path)}" if machine.unreadable else f"file={path}"
        argv += ["-drive", f"if=none,id=config{number},format=raw,readonly=on,{file}"]
        if not machine.late:
            *controllers, device = board.cdrom if bus == "cdrom" else ["virtio-blk-pci"]
            argv += devices([*controllers, f"{device},drive=config{number}"])
    if machine.late:
        argv += ["-device", "virtio-scsi-pci,id=scsi", "-monitor", f"unix:{monitor(machine)},server=on,wait=off"]
    return [str(a) for a in argv]


@contextlib.contextmanager
def powered(tpm):
    """A TPM as after switching on, for QEMU; `tpm` is the folder of its state, or None: no TPM."""
    if not tpm:
        yield
        return
    tpm.mkdir(parents=True, exist_ok=True)
    (tpm / "socket").unlink(missing_ok=True)
    process = subprocess.Popen(["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={tpm}", "--ctrl",
                                f"type=unixio,path={tpm / 'socket'}"], stdin=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if (tpm / "socket").exists():
                break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def devices(names):
    return [word for name in names for word in ("-device", name)]


def failing(machine, image):
    """The image, with an error at each read of the sectors that hold the text (QEMU's blkdebug)."""
    rules, at, content = [], -1, image.read_bytes()
    while (at := content.find(machine.unreadable.encode(), at + 1)) >= 0:
        rules.append(f'[inject-error]\nevent = "read_aio"\nerrno = "5"\nsector = "{at // 512}"\n')
    config = machine.logs / "blkdebug.conf"
    config.write_text("\n".join(rules))
    return f"blkdebug:{config}:{image}"


def mac(number):
    return (FIRST_MAC + number).to_bytes(6).hex(":")


def monitor(machine):
    return machine.logs / "monitor"


def plug(machine):
    """Plug the drives into the running machine, through QEMU's monitor."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(monitor(machine)))
        for number, (_, bus) in enumerate(machine.drives):
            device = "scsi-cd,bus=scsi.0" if bus == "cdrom" else "virtio-blk-pci"
            connection.sendall(f"device_add {device},drive=config{number}\n".encode())
        # The monitor works its input off in order and answers; leaving early would drop what it has not read.
        connection.settimeout(2)
        try:
            while connection.recv(4096):
                pass
        except TimeoutError:
            pass


def boot(machine, until=(), watch=None, after=0):
    """Run the machine until it switches itself off, all texts of `until` are on its console (and `after` seconds later), or
    time is over.

    `watch` is called with the console's text again and again.
    """
    machine.logs.mkdir(parents=True, exist_ok=True)
    console, checks = machine.logs / "console.log", machine.logs / "checks.log"
    for log in (console, checks):
        log.write_bytes(b"")
    with powered(machine.tpm):
        return run(machine, until, watch, after)


def run(machine, until, watch, after):
    """The same, with its TPM there."""
    console, checks = machine.logs / "console.log", machine.logs / "checks.log"
    read = lambda log: log.read_bytes().decode(errors="replace").replace("\r", "")
    begin = time.monotonic()
    plugged = not machine.late
    ended = "time"
    with open(machine.logs / "qemu.log", "wb") as errors:
        process = subprocess.Popen(command(machine), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                   pass_fds=[nic.fileno() for nic in machine.nics if nic])
    try:
        while time.monotonic() - begin < machine.time_limit:
            if process.poll() is not None:
                ended = "off"
                break
            text = read(console) if until or watch or not plugged else ""
            if watch:
                watch(text)
            if not plugged and machine.late in text:
                plug(machine)
                plugged = True
            if until and all(wanted in text for wanted in until):
                time.sleep(after)
                ended = "seen"
                break
            time.sleep(0.02 if until and after else 0.1)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode not in (0, -9):
        raise RuntimeError(f"qemu ended with {process.returncode}: {(machine.logs / 'qemu.log').read_text().strip()}")
    return Outcome(time.monotonic() - begin, read(console), read(checks), ended)
