"""A machine's metadata service: the scripted servers of tests/net in a network namespace, with the machine's NICs joined
to their links. Frames go through sockets, so that no /dev/net/tun is needed.

What a case says of it (all optional):
    documents   a folder of drives/, whose documents are served as on a drive; "server" without it
    texts       documents given another text, by name
    http        in place of both: what is served, by path: a text, or {method, status, body}; lab/texts.py's words stand in it.
                What has a method is sent to the service, and has to be sent in each boot
    ports       the ports that it is served on; [80] without it
    dns         addresses by name, of a name server beside it
    nics        for each NIC of the machine the link that it is on, by number; [0] without it
    nowhere     links that have no server
    vlan        the VLAN in which the servers are; 0 is none
    addresses   the servers' own, by link ("s0", "s1", …, "lo")
    dhcp        a lease by link: address, prefix, server, options (hex, by number), routes (pairs, for option 121)
    ra          a /64 that is advertised, by link
    requests    how many requests may come in one boot
"""

import importlib.util
import itertools
import shutil
import socket

from . import drive, images, texts

KEYS = {"documents", "texts", "http", "ports", "dns", "nics", "nowhere", "vlan", "addresses", "dhcp", "ra", "requests"}
NET = images.PROJECT / "tests/net/lab.py"
# Frames that wait for the other side, in bytes: more than a TCP window.
BUFFER = 4 << 20

# Both folders have a module named lab.
_spec = importlib.util.spec_from_file_location("net_lab", NET)
net = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(net)

_count = itertools.count()


class Service:
    """`with Service(what the case says, folder, public key) as service`: it runs; `service.nics` are the machine's sockets."""

    def __init__(self, given, folder, key):
        unknown = set(given) - KEYS
        if unknown:
            raise ValueError(f"unknown keys of a service: {' '.join(sorted(unknown))}")
        self.given, self.folder, self.key = given, folder, key

    def __enter__(self):
        on = self.given.get("nics", [0])
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in on]
        for end in itertools.chain(*pairs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.nics, far = [nic for nic, _ in pairs], [far for _, far in pairs]
        nowhere = self.given.get("nowhere", [])
        self.lab = net.Lab(links=max(on) + 1, nowhere=nowhere, sockets=list(zip(on, far)),
                           vlan=self.given.get("vlan", 0), tag=f"v{next(_count)}")
        self.lab.__enter__()
        try:
            for link, addresses in self.given.get("addresses", {}).items():
                for address in addresses:
                    # An address that is still being checked for duplicates does not answer.
                    words = ["nodad"] if ":" in address else []
                    self.lab.ip(self.lab.server, "addr", "add", address, "dev", link, *words)
            self.lab.serve(dhcp={link: lease(dict(given)) for link, given in self.given.get("dhcp", {}).items()},
                           ra=self.given.get("ra", {}), dns=self.given.get("dns", {}),
                           http={"docs": self.documents(), "ports": self.given.get("ports", [80])},
                           cable=[f"s{n}" for n in range(max(on) + 1) if n not in nowhere])
        except BaseException:
            self.__exit__()
            raise
        return self

    def documents(self):
        """The case's own, or the files of a config drive by path, and the list of versions."""
        if "http" in self.given:
            return texts.filled(self.given["http"], self.key)
        tree = self.folder / "served"
        drive.write_tree(tree, images.BOOT / "drives" / self.given.get("documents", "server"),
                         self.given.get("texts", {}), self.key)
        docs = {f"/{path.relative_to(tree)}": path.read_text() for path in tree.rglob("*") if path.is_file()}
        return docs | {"/openstack": "\n".join(drive.OPENSTACK)}

    def requests(self):
        """What was asked for: "METHOD PATH" of each request."""
        return [f"{said['http']} {said['path']}" for said in self.lab.said("http")]

    def wrong(self):
        """What the server's side of a boot shows to be wrong."""
        asked, most = self.requests(), self.given.get("requests")
        shutil.copy(self.lab.log, self.folder / "service.log")
        wrong = []
        if most is not None and len(asked) > most:
            wrong.append(f"{len(asked)} requests, more than {most}: {', '.join(asked)}")
        sent = {path: what for path, what in self.given.get("http", {}).items() if isinstance(what, dict) and "method" in what}
        due = [f"{what['method']} {path}" for path, what in sent.items()]
        return wrong + [f"no request {request}" for request in due if request not in asked]

    def __exit__(self, *_):
        self.lab.__exit__()
        for end in self.nics + [far for _, far in self.lab.sockets]:
            end.close()


def lease(script):
    """A lease of a case as a script for the server."""
    options = dict(script.pop("options", {}))
    if "routes" in script:
        options["121"] = net.route121(*script.pop("routes"))
    return script | {"options": options}
