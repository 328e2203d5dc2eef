"""What the expectations of a case look at."""

import json
import os
import re

from lab import run

#: The parts that an instance may have.
PARTS = ("metadata", "network", "user_data", "vendor_data", "vendor_data2")


class Observed:
    """What an expectation can look at, by the first name of its path:

    answer    what ask.rs printed, with `log`, `by` (the link of the answer) and `status`; or of a renaming
    parts     the instance's parts that are there, sorted; `tries`, the numbers of "N tries" in the error
    run       {code, said, seconds} of the last stage; `said` with the kernel's log
    http, dhcp, dns, connected    the server's log; `gaps` the seconds between requests, `span` from the first to the last,
              `dhcp_gaps` and `dhcp_secs` (how far the field secs is off) the same of DHCP; `new` how many of each the step added
    changed   the names of Lab.state's parts that the step changed; `changed_since_start`, that all steps changed
    ipv4      IPv4 addresses by link
    addresses, up, mtu, routes, names, alternatives    of the client's links now
    console, commands, status    of the machine: machine.py; `warnings` the local stage's of status.json as
              text, `warning_list` those of the level WARNING
    listing   the names of files beside the record of changes"""

    def __init__(self, lab):
        self.lab, self.box, self.answer, self.run = lab, None, None, None
        self.begin()
        self.start = self.before

    def begin(self):
        self.before, self.had = self.lab.state(), {kind: len(self.lab.said(kind)) for kind in ("http", "dhcp", "connected")}

    def value(self, name):
        if name in ("http", "dhcp", "dns", "connected"):
            return self.lab.said(name)
        if name in ("answer", "run"):
            return getattr(self, name)
        compute = getattr(self, f"its_{name}", None)
        if compute is None:
            raise ValueError(f"nothing is called {name} (observed.py)")
        return compute()

    def file(self, name):
        place, _, path = name.partition("/")
        base = {"record": os.path.join(self.lab.folder.name, "net")}.get(place) or {"root": self.box.root, "box": self.box.base}[place]
        path = os.path.join(base, path)
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return file.read()

    def its_parts(self):
        return [part for part in PARTS if (self.answer.get("instance") or {}).get(part)]

    def its_tries(self):
        return [int(n) for n in re.findall(r"\((\d+) tries\)", self.answer["error"])]

    def times(self, kind):
        return [line["time"] for line in self.lab.said(kind)]

    def its_gaps(self, kind="http"):
        times = self.times(kind)
        return [later - earlier for earlier, later in zip(times, times[1:])]

    def its_dhcp_gaps(self):
        return self.its_gaps("dhcp")

    def its_span(self):
        times = self.times("http")
        return times[-1] - times[0]

    def its_dhcp_secs(self):
        messages = self.lab.said("dhcp")
        return [abs(m["secs"] - (m["time"] - messages[0]["time"])) for m in messages]

    def its_new(self):
        return {kind: len(self.lab.said(kind)) - count for kind, count in self.had.items()}

    def its_changed(self):
        return difference(self.before, self.lab.state())

    def its_changed_since_start(self):
        return difference(self.start, self.lab.state())

    def its_ipv4(self):
        found = {}
        for link, address, length in self.lab.state()["addresses"]:
            if "." in address:
                found.setdefault(link, []).append(f"{address}/{length}")
        return found

    def its_addresses(self):
        return [f"{link} {address}/{length}" for link, address, length in self.lab.state()["addresses"]]

    def its_up(self):
        return [link["ifname"] for link in self.lab.state()["links"] if link["up"] and link["ifname"] != "lo"]

    def its_mtu(self):
        return {link["ifname"]: link["mtu"] for link in self.lab.state()["links"]}

    def its_routes(self):
        return [route for route in self.lab.state()["routes-4"] if "'local'" not in route]

    def its_names(self):
        by_address = {link["address"]: link["ifname"] for link in self.lab.state()["links"] if link["ifname"] not in ("lo", "br0")}
        return " ".join(by_address[self.lab.mac(n)] for n in range(self.lab.links))

    def its_alternatives(self):
        links = json.loads(run("ip", "-n", self.lab.client, "-j", "link").stdout)
        return [name for link in links for name in link.get("altnames", [])]

    def its_console(self):
        return self.box.console()

    def its_commands(self):
        return self.box.commands()

    def its_status(self):
        return self.box.status()

    def its_warnings(self):
        return json.dumps(self.box.status()["init-local"]["recoverable_errors"])

    def its_warning_list(self):
        return self.box.status()["init-local"]["recoverable_errors"].get("WARNING", [])

    def its_listing(self):
        return sorted(os.listdir(os.path.join(self.lab.folder.name, "net")))


def difference(before, after):
    return sorted(part for part in after if after[part] != before[part])
