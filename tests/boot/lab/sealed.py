"""Documents that are sealed to a machine's TPM before the machine is switched on, and to the values that its registers will have."""

import contextlib
import glob
import json
import subprocess
import time

from . import images, server

# What the recipe of prepivot-trust(7) needs on this machine, and the library by which its tools find a TPM in software.
NEEDED = {"swtpm": "swtpm", "tpm2_createek": "tpm2-tools", "tpm2_readpublic": "tpm2-tools"}
LIBRARY = "/usr/lib/*/libtss2-tcti-swtpm.so.*"
# How long the TPM may take to start, in seconds.
START = 20


def why_not():
    """What this machine lacks to seal; None if it lacks nothing."""
    return images.missing(NEEDED) or (None if glob.glob(LIBRARY) else "packages are missing: libtss2-tcti-swtpm0")


def texts(plain, tree, policy, tpm):
    """The texts of the documents `plain`, sealed to the TPM whose state is in the folder `tpm`, and to what `trust predict` says of
    the documents below `tree` by the policy in a folder. One of JSON has what is sealed where nova has vendor-data's."""
    key = tpm / "ek.pem"
    if not key.exists():
        read_endorsement_key(tpm, key)
    said = prepivot("trust", "predict", "--policy", policy, tree)
    value = next(line.split()[3] for line in said.splitlines() if line.startswith("PCR 12 ") and " sha256 " in line)
    sealed = {}
    for name, text in plain.items():
        role = name.removesuffix(".json").replace("_", "-")
        body = prepivot("trust", "seal", "--ek", key, "--pcr", f"12=sha256:{value}", "--name", role, text=text)
        sealed[name] = json.dumps({"cloud-init": body}) if name.endswith(".json") else body
    return sealed


def prepivot(*argv, text=None):
    """What the program prints."""
    done = subprocess.run([str(a) for a in (images.PROGRAM, *argv)], input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"prepivot {argv[0]} {argv[1]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def read_endorsement_key(tpm, key):
    """The public part of the endorsement key of a TPM that no machine has had yet, in PEM."""
    tpm.mkdir(parents=True, exist_ok=True)
    with started(tpm) as name:
        for argv in (["tpm2_createek", "-G", "rsa", "-c", tpm / "ek.ctx", "-u", tpm / "ek.tpm"], ["tpm2_flushcontext", "-t"],
                     ["tpm2_readpublic", "-c", tpm / "ek.ctx", "-f", "pem", "-o", key]):
            images.run("env", f"TPM2TOOLS_TCTI={name}", *argv)


@contextlib.contextmanager
def started(tpm):
    """The TPM in software without a machine. Gives its name for tpm2-tools."""
    port = free_ports()
    process = subprocess.Popen(["swtpm", "socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate", f"dir={tpm}",
                                "--server", f"type=tcp,port={port},disconnect", "--ctrl", f"type=tcp,port={port + 1}"],
                               stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START
        while not server.answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("swtpm does not answer")
            time.sleep(0.05)
        yield f"swtpm:host=127.0.0.1,port={port}"
    finally:
        process.terminate()
        process.wait()


def free_ports():
    """The first of two ports in a row that nothing listens on: tpm2-tools take the one after a TPM's for its control."""
    for _ in range(50):
        port = server.free_port()
        if port < 65535 and not server.answers(port + 1):
            return port
    raise RuntimeError("no two ports in a row are free")


def strays(image, text, paths):
    """The files of an ext4 image that have the text, as far as they are not among `paths`, and those of `paths` that have it not. A
    block that is free may have what is in a file, because the journal had it."""
    size = next(int(line.split()[-1]) for line in debugfs(image, "stats -h") if line.startswith("Block size:"))
    blocks = {at // size for at in occurrences(image, text.encode())}
    if not blocks:
        return ["no file at all has it"] if paths else []
    inodes = dict(line.split("\t") for line in debugfs(image, f"icheck {' '.join(map(str, sorted(blocks)))}")[1:])
    numbers = sorted({inode for inode in inodes.values() if inode.isdigit()})
    named = dict(line.split("\t") for line in debugfs(image, f"ncheck {' '.join(numbers)}")[1:]) if numbers else {}
    files = {named.get(inode, f"inode {inode}" if inode.isdigit() else "a free block") for inode in inodes.values()}
    if paths:
        files.discard("a free block")
    return sorted(files - set(paths)) + [f"{path} has it not" for path in sorted(set(paths) - files)]


def debugfs(image, command):
    done = subprocess.run(["debugfs", "-R", command, image], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def occurrences(path, text):
    """Where in a large file a text is, in bytes."""
    found, at, rest = [], 0, b""
    with open(path, "rb") as file:
        while piece := file.read(16 << 20):
            whole = rest + piece
            start = whole.find(text)
            while start >= 0:
                found.append(at - len(rest) + start)
                start = whole.find(text, start + 1)
            at, rest = at + len(piece), whole[-(len(text) - 1):]
    return found
