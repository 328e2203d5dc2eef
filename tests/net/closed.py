"""The metadata service closed to users (close_metadata_service, prepivot-trust(7)): who reaches it, by which way, before and after it
is closed, and what other programs do to that. In the client's namespace is a machine, and behind it a container."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

from case import Skip
from data import METADATA
from lab import Lab, run
from machine import Machine

LINK_LOCAL = "fe80::a9fe:a9fe"
EC2 = "fd00:ec2::254"
NOBODY, AGENT = 65534, 4242
#: One that every user may run.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
#: A client of HTTP on standard input: a user, an address, a port, a device to bind to. Prints "answered", or why not.
PROBE = """
import os, socket, sys
uid, address, port, device = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
if uid:
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
try:
    family, _, _, _, to = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(1.5)
        if device:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        one.connect(to)
        one.sendall(b"GET / HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
        print("answered" if one.recv(100).startswith(b"HTTP/") else "another answer")
except OSError as error:
    print(type(error).__name__ + ": " + str(error))
"""


class Ground:
    """A lab with a service at all of its addresses, a machine with `config`, and a container whose packets it forwards."""

    def __init__(self, lab, prepivot, **config):
        self.lab, self.container = lab, lab.nowhere
        self.serve()
        self.network()
        self.box = Machine(lab, prepivot, config=dict({"datasource_list": ["NoCloud", "None"]}, **config))
        self.box.write("var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-1\n")
        self.box.write("var/lib/cloud/seed/nocloud/user-data", "#cloud-config\n{}\n")
        self.box.write("etc/passwd", f"root:x:0:0::/:/bin/sh\nagent:x:{AGENT}:{AGENT}::/:/bin/sh\n")

    def serve(self):
        lab = self.lab
        lab.ip(lab.server, "addr", "add", "10.0.0.2/24", "dev", "s0")
        lab.ip(lab.server, "addr", "add", f"{METADATA}/32", "dev", "lo")
        for address in (LINK_LOCAL, EC2, "fd00::2"):
            lab.ip(lab.server, "addr", "add", f"{address}/64", "dev", "s0", "nodad")
        script = ("import http.server,socket,sys,threading\n"
                  "class S(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6\n"
                  "class H(http.server.BaseHTTPRequestHandler):\n"
                  "    def do_GET(self): self.send_response(200); self.end_headers()\n"
                  "    def log_message(self, *_): pass\n"
                  "for port in (80, 53, 32526): threading.Thread(target=S(('::', port), H).serve_forever, daemon=True).start()\n"
                  "print('ready', flush=True); sys.stdin.read()\n")
        process = subprocess.Popen(["ip", "netns", "exec", lab.server, sys.executable, "-c", script],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.processes.append(process)
        assert process.stdout.readline() == "ready\n"

    def network(self):
        lab = self.lab
        lab.join(lab.client, "k0", self.container, "e0")
        for where, link, addresses in ((lab.client, "c0", ("10.0.0.5/24", "fd00::5/64")),
                                       (lab.client, "k0", ("172.20.0.1/24", "fd01::1/64")),
                                       (self.container, "e0", ("172.20.0.2/24", "fd01::2/64"))):
            lab.ip(where, "link", "set", link, "up")
            for address in addresses:
                lab.ip(where, "addr", "add", address, "dev", link, *(["nodad"] if ":" in address else []))
        for word in ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"):
            run("ip", "netns", "exec", lab.client, "sysctl", "-q", word)
        lab.ip(lab.client, "route", "add", f"{METADATA}/32", "dev", "c0")
        lab.ip(lab.client, "route", "add", f"{EC2}/128", "dev", "c0")
        lab.ip(self.container, "route", "add", "default", "via", "172.20.0.1")
        lab.ip(self.container, "route", "add", "default", "via", "fd01::1")
        lab.ip(lab.server, "route", "add", "172.20.0.0/24", "via", "10.0.0.5")
        lab.ip(lab.server, "route", "add", "fd01::/64", "via", "fd00::5")

    def probe(self, user, address, port=80, device="", where=None, before=()):
        """What a user gets to see of the service."""
        done = run("ip", "netns", "exec", where or self.lab.client, *before, PYTHON, "-c", PROBE, str(user), address,
                   str(port), device)
        assert done.stdout, done.stderr
        return done.stdout.strip()

    def ways(self, user=NOBODY, addresses=(METADATA, LINK_LOCAL, EC2)):
        """Each way that a user has to the addresses, and a container's root, with the answer."""
        found = {}
        for address in addresses:
            to = f"{address}%c0" if address == LINK_LOCAL else address
            found[f"{address}"] = self.probe(user, to)
            found[f"{address} bound to the device"] = self.probe(user, to, device="c0")
            if address != LINK_LOCAL:
                found[f"{address} forwarded"] = self.probe(0, to, where=self.container)
        found["IPv4-mapped"] = self.probe(user, f"::ffff:{METADATA}")
        found["root of a user namespace"] = self.probe(0, METADATA, before=(
            "setpriv", f"--reuid={user}", "--clear-groups", "unshare", "--user", "--map-root-user"))
        return found

    def stage(self, *words):
        code, said, _ = self.box.run(*words, real=True)
        assert code == 0, f"{words}: {code}: {said[-800:]}"
        return said

    def record(self, addresses, users=()):
        """As a stage leaves it, for another cloud's addresses."""
        closed = {"addresses": [{"address": address, "tcp": ports} for address, ports in addresses], "users": list(users)}
        self.box.write("run/prepivot/closed.json", json.dumps(closed), self.box.base)

    def rules(self):
        lab = self.lab
        listed = [run("ip", "-n", lab.client, family, "rule").stdout for family in ("-4", "-6")]
        return "".join(listed) + run("ip", "netns", "exec", lab.client, "nft", "list", "ruleset").stdout

    def nft(self, *words):
        return run("ip", "netns", "exec", self.lab.client, "nft", *words)


@contextlib.contextmanager
def ground(programs, **config):
    with Lab(links=1) as lab:
        try:
            run("ip", "netns", "exec", lab.client, "nft", "list", "ruleset")
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip("no nft here, or a kernel without nf_tables") from error
        yield Ground(lab, programs[1], **config)


def all_refused(ways):
    reached = [way for way, answer in ways.items() if answer == "answered"]
    assert not reached, f"reached: {reached}"


def all_answered(ways):
    refused = {way: answer for way, answer in ways.items() if answer != "answered"}
    assert not refused, f"not reached: {refused}"


def service_closed_to_users(programs):
    """Root reaches the service, and nobody else does by any way: plain, bound to a device, IPv6, in a container, in a user namespace."""
    with ground(programs, close_metadata_service=True) as machine:
        every = (METADATA, LINK_LOCAL)
        all_answered(machine.ways())
        machine.stage("init", "--local")
        all_refused(machine.ways(addresses=every))
        for address in (METADATA, f"{LINK_LOCAL}%c0"):
            assert machine.probe(0, address) == "answered", address
        # Of an address that may have more than the service, what is no port of the service goes on.
        assert machine.probe(NOBODY, METADATA, 53) == "answered"
        assert machine.probe(NOBODY, "10.0.0.2") == "answered", "another address"
        assert "metadata_service: closed\n" in machine.stage("status", "--long")
        shown = machine.stage("trust", "show")
        assert "169.254.169.254, TCP 80, 443\n" in shown and "nf_tables in place, policy rules in place\n" in shown, shown
        # Once more changes nothing.
        before = machine.rules()
        machine.stage("trust", "close")
        assert machine.rules() == before, machine.rules()
        machine.stage("trust", "open")
        all_answered(machine.ways())
        assert "prohibit" not in machine.rules() and "prepivot" not in machine.rules(), machine.rules()
        # Until the next boot.
        code, said, _ = machine.box.run("trust", "close", real=True)
        assert code == 1 and "this boot has closed no service" in said, said
        all_answered(machine.ways())


def service_closed_to_all_but_an_agent(programs):
    """A user whom the configuration names reaches the service; another does not."""
    with ground(programs, close_metadata_service={"users": ["agent"]}) as machine:
        machine.stage("init", "--local")
        assert machine.probe(AGENT, METADATA) == "answered"
        assert machine.probe(AGENT, METADATA, device="c0") == "answered"
        assert machine.probe(0, METADATA) == "answered"
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))


def service_closed_by_the_final_stage(programs):
    """`final`: until the final stage has ended, users reach the service."""
    with ground(programs, close_metadata_service="final") as machine:
        for words in (("init", "--local"), ("init",), ("modules", "--mode", "config")):
            machine.stage(*words)
            assert machine.probe(NOBODY, METADATA) == "answered", words
        machine.stage("modules", "--mode", "final")
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))
        assert machine.probe(0, METADATA) == "answered"


def service_not_closed_by_default(programs):
    """Without the setting nothing is closed, and `trust close` says so."""
    with ground(programs) as machine:
        before = machine.rules()
        machine.stage("init", "--local")
        assert machine.rules() == before
        code, said, _ = machine.box.run("trust", "close", real=True)
        assert code == 1 and "this boot has closed no service" in said, said


def service_closed_at_each_clouds_ports(programs):
    """EC2's two addresses whole; of Azure's wire server two ports, and DNS goes on."""
    with ground(programs) as machine:
        machine.record([(METADATA, []), (EC2, []), ("10.0.0.2", [80, 32526])])
        machine.stage("trust", "close")
        all_refused(machine.ways(addresses=(METADATA, EC2)))
        for port, wanted in ((80, False), (32526, False), (53, True)):
            for where, device in ((None, ""), (None, "c0"), (machine.container, "")):
                answer = machine.probe(0 if where else NOBODY, "10.0.0.2", port, device, where)
                assert (answer == "answered") == wanted, (port, where, device, answer)
            assert machine.probe(0, "10.0.0.2", port) == "answered", port
        assert machine.probe(NOBODY, METADATA, 53) != "answered"


def service_closed_by_each_layer(programs):
    """A firewall flushes the table, or a network manager the rules: what is left refuses, and the unit's command closes the rest."""
    with ground(programs, close_metadata_service=True) as machine:
        machine.stage("init", "--local")
        machine.nft("flush", "ruleset")
        assert machine.probe(NOBODY, METADATA) == "PermissionError: [Errno 13] Permission denied"
        assert machine.probe(0, METADATA, where=machine.container) != "answered"
        assert machine.probe(NOBODY, METADATA, device="c0") == "answered", "the way that the table is for"
        assert "nf_tables missing, policy rules in place\n" in machine.stage("trust", "show")
        machine.stage("trust", "close")
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))
        for family in ("-4", "-6"):
            machine.lab.ip(machine.lab.client, family, "rule", "flush")
            machine.lab.ip(machine.lab.client, family, "rule", "add", "pref", "32766", "lookup", "main")
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))
        assert machine.probe(0, METADATA) == "answered"
        machine.stage("trust", "close")
        assert "nf_tables in place, policy rules in place\n" in machine.stage("trust", "show")


#: systemd-networkd with a system bus of its own, which sets up c0, and reads its files again.
NETWORKD = """set -e
mount -t tmpfs run /run
mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/dbus /run/udev/data
chown -R systemd-network: /run/systemd/netif
echo I:1 >"/run/udev/data/n$(cat /sys/class/net/c0/ifindex)"
printf '[Match]\\nName=c0\\n[Network]\\nAddress=10.0.0.5/24\\nAddress=fd00::5/64\\nIPv6AcceptRA=no\\n[Route]\\nDestination=169.254.169.254/32\\nScope=link\\n' \\
    >/run/systemd/network/c0.network
dbus-daemon --system --fork --nopidfile
/usr/lib/systemd/systemd-networkd &
configured() {
    for _ in $(seq 100); do
        if networkctl --no-pager list c0 2>/dev/null | grep -q ' configured'; then return 0; fi
        sleep 0.1
    done
    networkctl --no-pager status c0
    return 1
}
configured
networkctl reload
networkctl reconfigure c0
configured
"""


def service_closed_beside_networkd(programs):
    """systemd-networkd sets up the link, for which it removes others' rules, and `networkctl reload`: the table and the rules stay."""
    if not os.path.exists("/usr/lib/systemd/systemd-networkd") or shutil.which("dbus-daemon") is None:
        raise Skip("no systemd-networkd here, or no dbus-daemon")
    with ground(programs, close_metadata_service=True) as machine:
        machine.stage("init", "--local")
        before = machine.rules()
        machine.lab.ip(machine.lab.client, "rule", "add", "pref", "77", "to", "192.0.2.1", "prohibit")
        beside(machine, NETWORKD)
        # It has removed the rule that is not the kernel's.
        assert machine.rules() == before, machine.rules()
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))
        assert machine.probe(0, METADATA) == "answered"


def beside(machine, script):
    """Runs a script in the machine's namespace. What it started ends with it, and so do the files that it wrote."""
    done = run("ip", "netns", "exec", machine.lab.client, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
               FILES_OF_ITS_OWN + script, check=False, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


#: A network stack writes more than the files that it is for: NetworkManager rewrites resolv.conf.
FILES_OF_ITS_OWN = """set -e
mount -t tmpfs tmpfs /mnt
for folder in /etc /var/lib; do
    mkdir -p "/mnt/upper$folder" "/mnt/work$folder"
    mount -t overlay -o "lowerdir=$folder,upperdir=/mnt/upper$folder,workdir=/mnt/work$folder" overlay "$folder"
done
"""

#: NetworkManager with a system bus of its own, which sets up c0 with a rule, and reads its files again.
NETWORK_MANAGER = """set -e
mount -t tmpfs run /run
index=$(cat /sys/class/net/c0/ifindex)
mkdir -p /run/dbus /run/NetworkManager /run/udev/data
echo I:1 >"/run/udev/data/n$index"
dbus-daemon --system --fork --nopidfile
NetworkManager --no-daemon &
for _ in $(seq 100); do if nmcli -t general 2>/dev/null | grep -q .; then break; fi; sleep 0.1; done
nmcli connection add save no type ethernet ifname c0 con-name own ipv6.method link-local ipv4.method manual \\
    ipv4.addresses 10.0.0.5/24 ipv4.routes 169.254.169.254/32 ipv4.routing-rules 'priority 50 from all table 77'
nmcli connection up own
nmcli connection reload
nmcli general reload
nmcli device reapply c0
"""


def service_closed_beside_networkmanager(programs):
    """NetworkManager sets up the link, and reloads its files: the table and the rules are as before."""
    if any(shutil.which(program) is None for program in ("NetworkManager", "nmcli", "dbus-daemon")):
        raise Skip("no NetworkManager here, or no dbus-daemon")
    with ground(programs, close_metadata_service=True) as machine:
        machine.stage("init", "--local")
        before = machine.rules()
        beside(machine, NETWORK_MANAGER)
        after = machine.rules().splitlines()
        added = [line for line in after if line.startswith("50:")]
        assert added and [line for line in after if line not in added] == before.splitlines(), after
        all_refused(machine.ways(addresses=(METADATA, LINK_LOCAL)))
        assert machine.probe(0, METADATA) == "answered"


ALL = [service_closed_to_users, service_closed_to_all_but_an_agent, service_closed_by_the_final_stage, service_not_closed_by_default,
       service_closed_at_each_clouds_ports, service_closed_by_each_layer, service_closed_beside_networkd,
       service_closed_beside_networkmanager]
