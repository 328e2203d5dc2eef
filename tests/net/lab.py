"""The ground of tests/net: two or three namespaces joined by veth pairs, the server in one, prepivot in another."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*command, check=True, **more):
    return subprocess.run(command, check=check, capture_output=True, text=True, **more)


def why_not():
    """Why namespaces can't be made here; None where they can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    name = f"prepivot-try-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1")
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return f"no network namespaces here: {detail.strip()}"
    finally:
        run("ip", "netns", "del", name, check=False)


def sweep():
    """Takes down the namespaces of a run that was killed."""
    for name in run("ip", "netns", "list", check=False).stdout.split():
        pid = name.rsplit("-", 1)[-1]
        if name.startswith("prepivot-") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            run("ip", "netns", "del", name, check=False)


def route121(*routes):
    """Option 121 as hex: (destination/length, gateway)."""
    out = b""
    for destination, gateway in routes:
        network, length = destination.split("/")
        significant = (int(length) + 7) // 8
        octets = bytes(int(o) for o in network.split("."))[:significant]
        out += bytes([int(length)]) + octets + bytes(int(o) for o in gateway.split("."))
    return out.hex()


class Lab:
    """`with Lab(links=2) as lab`: client namespace with links c0, c1 … (down), server namespace with s0, s1 … (up).

    nowhere: links that lead to a third namespace, `lab.nowhere`, which has no service.
    delay: how long each frame takes, in seconds.
    sockets: for a virtual machine in the client's place, (link, datagram socket) for each of its NICs.
    vlan: the VLAN in which the machine has to be, on all links.
    tag: tells the labs of one process apart."""

    def __init__(self, links=1, nowhere=(), delay=0, sockets=(), vlan=0, tag=""):
        pid = os.getpid()
        self.client, self.server, self.nowhere, self.wire = (f"prepivot-{w}{tag}-{pid}" for w in "csnw")
        self.links, self.lost, self.delay = links, nowhere, delay
        self.sockets, self.vlan = sockets, vlan
        self.processes = []
        self.folder = tempfile.TemporaryDirectory(prefix="prepivot-net-")
        self.log = os.path.join(self.folder.name, "log")

    def __enter__(self):
        for name in (self.client, self.server, self.nowhere, self.wire):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        ends = []
        for n in range(self.links):
            far = self.nowhere if n in self.lost else self.server
            near, end = far, f"s{n}"
            if self.delay or self.sockets:
                self.join(self.wire, f"b{n}", far, f"s{n}")
                near, end = self.wire, f"a{n}"
            if not self.sockets:
                self.join(self.client, f"c{n}", near, end, "address", self.mac(n))
                ends += [f"a{n}", f"b{n}"] if self.delay else []
            for where, end in ((far, f"s{n}"), (self.wire, f"a{n}"), (self.wire, f"b{n}")):
                run("ip", "-n", where, "link", "set", end, "up", check=where != self.wire)
        for n, socket in self.sockets:
            ends += [f"socket:{socket.fileno()}:{self.vlan}", f"b{n}"]
        if ends:
            self.start(self.wire, "wire.py", str(self.delay), *ends, fds=[s.fileno() for _, s in self.sockets])
        return self

    def join(self, here, end, there, other, *words):
        run("ip", "-n", here, "link", "add", end, *words, "type", "veth", "peer", "name", other, "netns", there)

    def __exit__(self, *_):
        for process in self.processes:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in (self.client, self.server, self.nowhere, self.wire):
            run("ip", "netns", "del", name, check=False)
        self.folder.cleanup()

    @staticmethod
    def mac(n):
        return f"02:00:00:00:01:{n:02x}"

    def ip(self, where, *words):
        return run("ip", "-n", where, *words)

    def start(self, where, script, *words, given="", fds=()):
        """Runs one of this folder's scripts in a namespace until the lab is taken down; `given` is put into its input."""
        process = subprocess.Popen(["ip", "netns", "exec", where, sys.executable, os.path.join(HERE, script), *words],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=fds)
        self.processes.append(process)
        process.stdin.write(given)
        process.stdin.flush()
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{script} did not start")

    def serve(self, where=None, **config):
        """Starts the server with a script (see server.py); its log is read by `said`."""
        log = self.log if where is None else f"{self.log}-{where}"
        self.start(where or self.server, "server.py", log, given=json.dumps(config) + "\n")

    def stop(self):
        """Ends what was started last."""
        process = self.processes.pop()
        process.stdin.close()
        process.wait(5)

    def said(self, kind):
        """The lines of the server's log that have the key `kind`."""
        if not os.path.exists(self.log):
            return []
        with open(self.log) as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if kind in line]

    def state(self):
        """Everything that prepivot may change in the client's namespace, in a form that compares."""
        links = json.loads(run("ip", "-n", self.client, "-j", "-d", "link").stdout)
        kept = ("ifname", "mtu", "address", "operstate", "master", "linkmode")
        found = {"links": [{k: link.get(k) for k in kept} | {"up": "UP" in link["flags"]} for link in links]}
        found["addresses"] = [
            (entry["ifname"], info.get("local"), info.get("prefixlen"))
            for entry in json.loads(run("ip", "-n", self.client, "-j", "addr").stdout)
            for info in entry["addr_info"]
        ]
        for family in ("-4", "-6"):
            routes = json.loads(run("ip", "-n", self.client, "-j", family, "route", "show", "table", "all").stdout or "[]")
            found["routes" + family] = sorted(
                (r.get("dst"), r.get("dev"), r.get("gateway"), r.get("metric"), r.get("table")) .__repr__() for r in routes)
        found["rules"] = run("ip", "-n", self.client, "rule").stdout
        return found

    def machine(self, cmdline="", **files):
        """A folder that represents the machine: its kernel command line, DMI values, and other files by path."""
        folder = os.path.join(self.folder.name, "machine")
        files = {"sys/class/dmi/id/" + k if "/" not in k else k: v for k, v in files.items()}
        for path, text in dict(files, **{"proc/cmdline": cmdline}).items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text + "\n")
        return folder

    def ask(self, program, *words, limit=60, environment=()):
        """Runs net-ask in the client's namespace; gives its line of JSON and what it logged."""
        done = run("ip", "netns", "exec", self.client, program, *words, check=False, timeout=limit,
                   env=dict(os.environ, **dict(environment)))
        lines = done.stdout.strip().splitlines()
        answer = json.loads(lines[-1]) if lines else {"ok": False, "error": None}
        by = [line.split()[-1] for line in done.stderr.splitlines() if " answers by " in line]
        return dict(answer, by=by[-1] if by else None, log=done.stderr, status=done.returncode)
