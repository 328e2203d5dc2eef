"""The cases of tests/net: each makes its lab, asks, and checks what came, how long it took, and what is left."""

import json
import os
import re
import subprocess
import threading
import time

from lab import Lab, run

UUID = "7f3e0c4a-5f3b-4a53-9e7d-6a3e0c1f2b3d"
METADATA = "169.254.169.254"
VERSION = "/openstack/2018-08-27"
#: What a nova of today has.
NOVA = {
    "/openstack": "2012-08-10\n2013-04-04\n2018-08-27\n2020-10-14\nlatest",
    f"{VERSION}/meta_data.json": json.dumps({"uuid": UUID, "hostname": "node-1.example.org", "name": "node-1"}),
    f"{VERSION}/user_data": "#cloud-config\nruncmd: [true]\n",
    f"{VERSION}/vendor_data.json": '{"cloud-init": "#cloud-config\\n{}"}',
    f"{VERSION}/vendor_data2.json": '{"static": {}}',
    f"{VERSION}/network_data.json": '{"links": [], "networks": [], "services": []}',
}
#: What a first boot fills in.
WHOLE = {"metadata", "user_data", "vendor_data", "vendor_data2", "network"}


class Skip(Exception):
    pass


class Run:
    """One case's tools."""

    def __init__(self, program, prepivot, verbose):
        #: The example that asks, and prepivot itself.
        self.program, self.prepivot, self.verbose = program, prepivot, verbose

    def ask(self, lab, source, deadline, *words, within=None, limit=60, cmdline="", machine=None):
        """Asks; the answer must be there within so many seconds, and the namespace must be as it was before."""
        folder = lab.machine(cmdline, **(machine or {}))
        before = lab.state()
        answer = lab.ask(self.program, source, str(deadline), f"machine={folder}", *words, "verbose", limit=limit)
        if self.verbose:
            print(answer)
        assert answer.get("total") is not None, f"no answer: {answer}"
        within = within if within is not None else deadline + 1
        assert answer["total"] <= within, f"took {answer['total']:.2f} s, more than {within}: {answer['error']}"
        after = lab.state()
        assert before == after, f"left behind: {difference(before, after)}"
        return answer


def difference(before, after):
    return {k: {"before": before[k], "after": after[k]} for k in before if before[k] != after[k]}


def good(answer, parts=WHOLE, lab=None, by=None):
    """The answer is the instance with just these parts; it came by that link."""
    assert answer["ok"], answer["error"]
    instance = answer["instance"]
    found = {p for p in WHOLE if instance.get(p)}
    assert found == set(parts), f"{sorted(found ^ set(parts))} of {instance}"
    return answer


def bad(answer, *words):
    assert not answer["ok"], answer
    for word in words:
        assert word in answer["error"], f"{word!r} is not in: {answer['error']}"
    return answer


def route121(*routes):
    """Option 121 as hex: (destination/length, gateway)."""
    out = b""
    for destination, gateway in routes:
        network, length = destination.split("/")
        significant = (int(length) + 7) // 8
        octets = bytes(int(o) for o in network.split("."))[:significant]
        out += bytes([int(length)]) + octets + bytes(int(o) for o in gateway.split("."))
    return out.hex()


def neutron(n=0, **more):
    """A lease as neutron gives it: the metadata service behind a host route of option 121, another default router."""
    options = {"3": f"0a00{n:02x}fe", "121": route121((f"{METADATA}/32", f"10.0.{n}.2"), ("0.0.0.0/0", f"10.0.{n}.1")),
               "6": f"0a00{n:02x}02", "26": "05a2"}
    return dict({"address": f"10.0.{n}.5", "server": f"10.0.{n}.2", "options": options}, **more)


def stand(lab, n=0):
    """The server's addresses on link n, and the service's."""
    lab.ip(lab.server, "addr", "add", f"10.0.{n}.2/24", "dev", f"s{n}")
    lab.ip(lab.server, "addr", "replace", f"{METADATA}/32", "dev", "lo")


# Links and DHCP

def behind_option_121(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, within=3))
        assert answer["requests"] == 5, f"{answer['requests']} requests"
        assert (answer["place"], answer["by"]) == (f"http://{METADATA}", "c0"), answer["place"]
        instance = answer["instance"]
        assert instance["instance_id"] == UUID and instance["local_hostname"] == "node-1.example.org", instance
        assert instance["user_data"].startswith("#cloud-config") and instance["subplatform"] == f"metadata (http://{METADATA})"
        kinds = [m["kind"] for m in lab.said("dhcp")]
        assert kinds == [1, 3], kinds
        peers = {r["peer"] for r in lab.said("http")}
        assert peers == {"::ffff:10.0.0.5"}, peers
        agents = {r["headers"].get("user-agent", "").split("/")[0] for r in lab.said("http")}
        assert agents == {"prepivot"}, agents
        return f"{answer['requests']} requests, {answer['seconds']:.3f} s"


def on_link_by_dhcp(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", f"{METADATA}/16", "dev", "s0")
        lab.serve(dhcp={"s0": {"address": "169.254.10.5", "prefix": 16, "server": METADATA}}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))


def a_lease_without_routes(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "route", "add", "10.9.0.0/24", "dev", "s0")
        lab.serve(dhcp={"s0": {"address": "10.9.0.5", "server": "10.9.0.1"}}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))


def by_the_default_router(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": {"address": "10.0.0.5", "server": "10.0.0.2", "options": {"3": "0a000002"}}},
                  http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))


def a_router_outside_of_the_network(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "addr", "add", "192.168.77.1/32", "dev", "s0")
        lab.ip(lab.server, "route", "add", "10.0.0.5/32", "dev", "s0")
        lease = {"address": "10.0.0.5", "prefix": 32, "server": "10.0.0.2", "options": {"3": "c0a84d01"}}
        lab.serve(dhcp={"s0": lease}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))


def without_dhcp(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", f"{METADATA}/16", "dev", "s0")
        lab.serve(http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=7))
        assert all(r["peer"].startswith("::ffff:169.254.") for r in lab.said("http"))


def ipv6_only(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", "fe80::a9fe:a9fe/64", "dev", "s0", "nodad")
        lab.serve(http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, within=6))
        assert answer["place"] == "http://[fe80::a9fe:a9fe%25c0]", answer["place"]
        hosts = {r["headers"]["host"] for r in lab.said("http")}
        assert hosts == {"[fe80::a9fe:a9fe]"}, hosts
        return f"{answer['seconds']:.3f} s"


def rapid_commit(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(rapid=True)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))
        assert [m["kind"] for m in lab.said("dhcp")] == [1]


def every_option_is_asked_for_and_read(t):
    """Each option of the list, from a server that has them all; what was learned is in /run for those who come later."""
    ip = lambda *addresses: "".join(f"{int(o):02x}" for a in addresses for o in a.split("."))
    options = {"3": ip("10.0.0.1"), "6": ip("9.9.9.9", "10.0.0.2"), "12": b"node-9".hex(), "15": b"example.org".hex(), "26": "0578",
               "28": ip("10.0.0.255"), "33": ip("192.168.7.7", "10.0.0.9"), "42": ip("10.0.0.9"),
               "119": b"\x03eng\x07example\x03org\x00\x03lab\xc0\x04".hex(), "245": ip("168.63.129.16"),
               "121": route121((f"{METADATA}/32", "10.0.0.2"), ("192.168.9.0/24", "0.0.0.0"), ("0.0.0.0/0", "10.0.0.1")),
               "249": route121(("1.2.3.0/24", "10.0.0.66"))}
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(options=options)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, f"record={lab.folder.name}/net/changes.json", within=3))
        with open(f"{lab.folder.name}/net/lease-c0.json") as file:
            lease = json.load(file)
        routes = [(r["destination"], r["gateway"]) for r in lease.pop("routes")]
        assert routes == [(f"{METADATA}/32", "10.0.0.2"), ("192.168.9.0/24", None), ("0.0.0.0/0", "10.0.0.1")], routes
        assert lease == {"link": "c0", "address": "10.0.0.5", "prefix": 24, "broadcast": "10.0.0.255", "dns": ["9.9.9.9", "10.0.0.2"],
                         "ntp": ["10.0.0.9"], "domain": "example.org", "search": ["eng.example.org", "lab.example.org"],
                         "host-name": "node-9", "mtu": 1400, "server": "10.0.0.2", "seconds": 3600,
                         "azure-endpoint": "168.63.129.16"}, lease
        for message in lab.said("dhcp"):
            missing = {1, 3, 6, 12, 15, 26, 28, 33, 42, 51, 54, 119, 121, 245, 249} - set(message["parameters"])
            assert not missing, f"not asked for: {missing}"
            # RFC 3442: a client that wants classless routes asks for them before the router.
            assert message["parameters"].index(121) < message["parameters"].index(3), message["parameters"]


def routes_without_option_121(t):
    """Microsoft's 249 stands in for it; without either, 33 and the router of option 3 count."""
    for options in ({"249": route121((f"{METADATA}/32", "10.0.0.2")), "3": "0a0000fe"},
                    {"33": "a9fea9fe0a000002", "3": "0a0000fe"}, {"3": "0a000002"}):
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron(options=options)}, http={"docs": NOVA})
            good(t.ask(lab, "OpenStack", 20, within=3))


def the_mtu_of_the_lease(t):
    """It holds while the network is up (seen in a network that is kept); one below IPv6's least is not taken."""
    for value, mtu in (("0578", 1400), ("0240", 1500), ("2328", 1500)):
        with Lab() as lab:
            stand(lab)
            options = dict(neutron()["options"], **{"26": value})
            lab.serve(dhcp={"s0": neutron(options=options)}, http={"docs": NOVA})
            good(lab.ask(t.program, "OpenStack", "20", f"machine={lab.machine()}", "keep"))
            found = [link["mtu"] for link in lab.state()["links"] if link["ifname"] == "c0"]
            assert found == [mtu], (value, found)


def split_options(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(long=True)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=3))


def a_refusal_then_a_lease(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(nak=1)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=4))
        assert [m["kind"] for m in lab.said("dhcp")] == [1, 3, 1, 3]


def only_refusals(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(nak=-1)}, http={"docs": NOVA})
        # The server's namespace answers for the service even to a link-local address; no DHCP is what is tried here.
        lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
        answer = bad(t.ask(lab, "OpenStack", 6), "c0", "refusals")
        count = len(lab.said("dhcp"))
        assert 4 <= count <= 24, f"{count} messages in 6 s"


def lost_messages(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(drop=2)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=5))
        messages = lab.said("dhcp")
        assert len({m["xid"] for m in messages}) == 1, "repeats are one transaction"


def a_slow_server(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(delay=1.5)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, within=9))


def no_answer(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(silent=True)})
        lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
        bad(t.ask(lab, "OpenStack", 6), "c0: no DHCP lease")
        times = [m["time"] for m in lab.said("dhcp")]
        gaps = [b - a for a, b in zip(times, times[1:])]
        # Half a second, doubled each time, give or take a quarter; the last that fits before a link-local address is tried
        # beside it begins anew.
        for n, gap in enumerate(gaps[:3]):
            assert 0.35 * 2 ** n <= gap <= 0.7 * 2 ** n, gaps
        assert all(m["secs"] == round(m["time"] - times[0] - 0.2) or abs(m["secs"] - (m["time"] - times[0])) <= 1.1 for m in lab.said("dhcp"))


def nonsense_for_dhcp(t):
    for fault in ("garbage", "wrong_xid"):
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron(**{fault: True})})
            lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
            bad(t.ask(lab, "OpenStack", 3), "no DHCP lease")


def no_carrier(t):
    with Lab() as lab:
        lab.ip(lab.server, "link", "set", "s0", "down")
        bad(t.ask(lab, "OpenStack", 3), "c0: no carrier")


def carrier_that_comes_late(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "link", "set", "s0", "down")
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        plug = threading.Thread(target=plug_in_once_it_waits, args=(lab,))
        plug.start()
        try:
            answer = good(t.ask(lab, "OpenStack", 20, within=5))
        finally:
            plug.join()
        assert answer["seconds"] >= 0.5, answer["seconds"]


def plug_in_once_it_waits(lab):
    """Gives the first link carrier half a second after it was set up."""
    end = time.monotonic() + 10
    while time.monotonic() < end and not any(link["up"] for link in lab.state()["links"] if link["ifname"] == "c0"):
        time.sleep(0.02)
    time.sleep(0.5)
    lab.ip(lab.server, "link", "set", "s0", "up")


def no_links_at_all(t):
    with Lab(links=0) as lab:
        bad(t.ask(lab, "OpenStack", 20, within=1), "no network link")


def both_families_are_raced(t):
    """Where one of them leads nowhere, the other answers, and soon; where both lead there, one answer is taken."""
    for four, six in ((True, True), (False, True), (True, False)):
        with Lab() as lab:
            stand(lab)
            if six:
                lab.ip(lab.server, "addr", "add", "fe80::a9fe:a9fe/64", "dev", "s0", "nodad")
            if not four:
                # The packets are taken and nobody says so.
                lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
                lab.ip(lab.server, "route", "add", "blackhole", f"{METADATA}/32")
            lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
            answer = good(t.ask(lab, "OpenStack", 20, within=5))
            expected = {(True, False): f"http://{METADATA}", (False, True): "http://[fe80::a9fe:a9fe%25c0]"}.get((four, six))
            assert expected in (None, answer["place"]), answer["place"]
            assert len(lab.said("http")) <= 10, lab.said("http")


# Several links

def one_of_two(t):
    for service in (0, 1):
        with Lab(links=2) as lab:
            other = 1 - service
            stand(lab, service)
            lab.serve(dhcp={f"s{service}": neutron(service), f"s{other}": neutron(other, silent=True)}, http={"docs": NOVA})
            answer = good(t.ask(lab, "OpenStack", 20, within=3))
            assert answer["by"] == f"c{service}", answer["by"]


def the_first_of_two_leads_nowhere(t):
    """Both have a lease and a route to the service; behind the first nobody has it, and nobody says so."""
    with Lab(links=2, nowhere=[0]) as lab:
        stand(lab, 1)
        lab.ip(lab.nowhere, "addr", "add", "10.0.0.2/24", "dev", "s0")
        lab.serve(lab.nowhere, dhcp={"s0": neutron(0)})
        lab.serve(dhcp={"s1": neutron(1, delay=0.2)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, within=3))
        assert answer["by"] == "c1", answer["by"]
        assert len(answer["leases"]) == 2, answer["leases"]


def one_of_sixteen(t):
    with Lab(links=16) as lab:
        service = 11
        stand(lab, service)
        for n in range(16):
            if n % 3 == 0:
                lab.ip(lab.server, "link", "set", f"s{n}", "down")
        dhcp = {f"s{n}": neutron(n, silent=n != service) for n in range(16)}
        lab.serve(dhcp=dhcp, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, within=4))
        assert answer["by"] == f"c{service}", answer["by"]
        return f"{answer['seconds']:.3f} s"


def a_link_in_use_is_left_alone(t):
    """The first link is up with an address and a default route, as a network root's: it stays so, and is asked too."""
    with Lab(links=2) as lab:
        stand(lab, 0)
        lab.ip(lab.client, "link", "set", "c0", "up")
        lab.ip(lab.client, "addr", "add", "10.0.0.9/24", "dev", "c0")
        lab.ip(lab.client, "route", "add", "default", "via", "10.0.0.2")
        run("ip", "-n", lab.client, "-6", "addr", "flush", "dev", "c0")
        lab.serve(dhcp={"s0": neutron(0, silent=True), "s1": neutron(1, silent=True)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, within=3))
        assert answer["by"] == "c0", answer["by"]
        assert not [m for m in lab.said("dhcp") if m["dhcp"] == "s0"], "no DHCP on a link in use"


def an_enslaved_link_is_left_alone(t):
    with Lab(links=2) as lab:
        stand(lab, 1)
        lab.ip(lab.client, "link", "add", "br0", "type", "bridge")
        lab.ip(lab.client, "link", "set", "c0", "master", "br0")
        lab.serve(dhcp={"s0": neutron(0), "s1": neutron(1)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, cmdline="ip=c0:dhcp ip=c1:dhcp", within=3))
        assert {m["dhcp"] for m in lab.said("dhcp")} == {"s1"}


def a_killed_run_is_taken_back_by_the_next(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        record = f"record={lab.folder.name}/net/changes.json"
        before = lab.state()
        machine = f"machine={lab.machine()}"
        assert lab.ask(t.program, "OpenStack", "20", machine, record, "die")["status"] == 9
        assert lab.state() != before, "the killed run should have left something"
        answer = lab.ask(t.program, "OpenStack", "20", machine, record)
        good(answer)
        assert lab.state() == before, difference(before, lab.state())
        with open(f"{lab.folder.name}/net/lease-c0.json") as file:
            lease = json.load(file)
        assert lease["address"] == "10.0.0.5" and lease["routes"][0]["gateway"] == "10.0.0.2", lease
        assert os.listdir(f"{lab.folder.name}/net") == ["lease-c0.json"], "the record of changes is gone with them"


def kept_when_asked(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        good(lab.ask(t.program, "OpenStack", "20", f"machine={lab.machine()}", "keep"))
        state = lab.state()
        assert ("c0", "10.0.0.5", 24) in state["addresses"], state["addresses"]


# The kernel command line

def a_fixed_address(t):
    with Lab(links=2) as lab:
        stand(lab, 0)
        lab.serve(dhcp={"s0": neutron(0), "s1": neutron(1)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, cmdline="ip=10.0.0.77::10.0.0.2:255.255.255.0:node:c0:none:1400", within=3))
        assert not lab.said("dhcp")
        assert {r["peer"] for r in lab.said("http")} == {"::ffff:10.0.0.77"}


def a_vlan(t):
    with Lab() as lab:
        needs_kind(lab, "vlan", "link", "c0", "id", "7")
        lab.ip(lab.server, "link", "add", "link", "s0", "name", "s0.7", "type", "vlan", "id", "7")
        lab.ip(lab.server, "link", "set", "s0.7", "up")
        lab.ip(lab.server, "addr", "add", "10.0.0.2/24", "dev", "s0.7")
        lab.ip(lab.server, "addr", "add", f"{METADATA}/32", "dev", "lo")
        lab.serve(dhcp={"s0.7": neutron(0)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, cmdline="vlan=vlan7:c0 ip=vlan7:dhcp", within=4))
        assert answer["by"] == "vlan7", answer["by"]


def needs_kind(lab, kind, *words):
    link, options = words[:2], words[2:]
    try:
        lab.ip(lab.client, "link", "add", *link, "name", "try0", "type", kind, *options)
        lab.ip(lab.client, "link", "del", "try0")
    except Exception as error:
        raise Skip(f"this kernel has no {kind}") from error


def a_bond(t):
    with Lab(links=2) as lab:
        needs_kind(lab, "bond")
        lab.ip(lab.server, "link", "add", "sbr", "type", "bridge")
        for n in range(2):
            lab.ip(lab.server, "link", "set", f"s{n}", "master", "sbr")
        lab.ip(lab.server, "link", "set", "sbr", "up")
        lab.ip(lab.server, "addr", "add", "10.0.0.2/24", "dev", "sbr")
        lab.ip(lab.server, "addr", "add", f"{METADATA}/32", "dev", "lo")
        lab.serve(dhcp={"sbr": neutron(0)}, http={"docs": NOVA})
        line = "bond=bond7:c0,c1:mode=active-backup,miimon=50:1400 ip=bond7:dhcp"
        answer = good(t.ask(lab, "OpenStack", 20, cmdline=line, within=8))
        assert answer["by"] == "bond7", answer["by"]


def a_bridge(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(0)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "OpenStack", 20, cmdline="bridge=br7:c0 ip=br7:dhcp", within=20))
        assert answer["by"] == "br7", answer["by"]
        return f"{answer['seconds']:.1f} s"


def switched_off(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(0)}, http={"docs": NOVA})
        bad(t.ask(lab, "OpenStack", 20, cmdline="ip=off", within=1))
        assert not lab.said("dhcp")


# Names

def rename(t, lab, *wanted):
    """Renames links (`c0=c1`); gives the names by link, as they were numbered, and what was logged."""
    answer = lab.ask(t.program, "rename", *wanted, "verbose")
    now = names(lab)
    return answer, " ".join(now[lab.mac(n)] for n in range(lab.links))


def names_are_swapped(t):
    with Lab(links=5) as lab:
        answer, now = rename(t, lab, "c0=c1", "c1=c2", "c2=c0", "c3=c4", "c4=c3")
        assert answer["ok"] and now == "c1 c2 c0 c4 c3", (answer, now)
        answer, now = rename(t, lab, "c1=net0", "c2=c1")
        assert answer["ok"] and now == "net0 c1 c0 c4 c3", (answer, now)
        assert not any(link["up"] for link in lab.state()["links"] if link["ifname"] != "lo")


def links_in_use_keep_their_names(t):
    """One is up, one has an address, one is part of a bridge; who waits for their names keeps the old one too."""
    with Lab(links=6) as lab:
        lab.ip(lab.client, "link", "set", "c0", "up")
        lab.ip(lab.client, "addr", "add", "10.0.0.9/24", "dev", "c1")
        lab.ip(lab.client, "link", "add", "br0", "type", "bridge")
        lab.ip(lab.client, "link", "set", "c2", "master", "br0")
        before = {n: lab.state()[n] for n in ("addresses", "routes-4", "routes-6")}
        answer, now = rename(t, lab, "c0=lan0", "c1=lan1", "c2=lan2", "c3=c0", "c4=lan4", "c5=c4")
        assert answer["ok"] and now == "c0 c1 c2 c3 lan4 c4", (answer, now)
        for line in ("c0 is not renamed to lan0: it is up", "c1 is not renamed to lan1: it has an address",
                     "c2 is not renamed to lan2: it is part of another link",
                     "c3 is not renamed to c0: another link is called c0"):
            assert line in answer["log"], f"{line!r} is not in {answer['log']}"
        assert before == {n: lab.state()[n] for n in before}


def a_failed_rename_leaves_the_old_names(t):
    """The kernel refuses the last name, after the cycle was turned: every link has its old name again."""
    with Lab(links=3) as lab:
        lab.ip(lab.client, "link", "property", "add", "dev", "c1", "altname", "enp1s0")
        for wanted in (["c0=c1", "c1=c0", "c2=default"], ["c0=c1", "c1=c2", "c2=all"], ["c1=enp1s0", "c0=c1", "c2=all"]):
            answer, now = rename(t, lab, *wanted)
            assert not answer["ok"] and now == "c0 c1 c2", (answer, now)
            assert "failed to rename the link c2 to" in answer["error"], answer["error"]
            assert alternatives(lab) == ["enp1s0"], alternatives(lab)
        answer, now = rename(t, lab, "c0=bad/name", f"c1={'n' * 16}", "gone=x", "c2=eth%d")
        assert answer["ok"] and now == "c0 c1 c2", (answer, now)


def an_alternative_name_becomes_the_name(t):
    """systemd-udevd gives links further names; the kernel refuses those as names as long as they are there."""
    with Lab(links=2) as lab:
        lab.ip(lab.client, "link", "property", "add", "dev", "c0", "altname", "enp1s0", "altname", "a-name-that-is-longer-than-any-link-has")
        answer, now = rename(t, lab, "c1=enp1s0")
        assert answer["ok"] and now == "c0 c1", (answer, now)
        answer, now = rename(t, lab, "c0=enp1s0")
        assert answer["ok"] and now == "enp1s0 c1", (answer, now)
        assert alternatives(lab) == ["a-name-that-is-longer-than-any-link-has"], alternatives(lab)


def alternatives(lab):
    links = json.loads(run("ip", "-n", lab.client, "-j", "link").stdout)
    return [name for link in links for name in link.get("altnames", [])]


def names(lab):
    return {link["address"]: link["ifname"] for link in lab.state()["links"] if link["ifname"] not in ("lo", "br0")}


# The metadata service

def service(t, faults=(), docs=NOVA, deadline=8, **more):
    """Asks a service with faults, by a good lease; gives the answer, and the requests as (method, path)."""
    machine, within = more.pop("machine", None), more.pop("within", None)
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http=dict({"docs": docs, "faults": list(faults)}, **more))
        answer = t.ask(lab, "OpenStack", deadline, within=within, machine=machine)
        return answer, [(r["http"], r["path"]) for r in lab.said("http")], lab.said("http")


def nobody_listens(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()})
        answer = bad(t.ask(lab, "OpenStack", 5), "refused")
        tries = [int(n) for n in re.findall(r"\((\d+) tries\)", answer["error"])]
        assert tries and all(3 <= n <= 20 for n in tries), answer["error"]


def a_service_that_is_silent(t):
    bad(service(t, [{"fault": "silent"}], deadline=4)[0], "no whole answer")


def a_service_that_drips(t):
    bad(service(t, [{"fault": "drip"}], deadline=4)[0])


def a_service_that_resets_at_first(t):
    good(service(t, [{"fault": "reset", "times": 2}], within=4)[0])


def a_service_that_always_resets(t):
    bad(service(t, [{"fault": "reset"}], deadline=4)[0], "c0:")


def half_a_body_at_first(t):
    good(service(t, [{"fault": "half", "times": 2}], within=4)[0])


def always_half_a_body(t):
    bad(service(t, [{"fault": "half"}], deadline=4)[0], "c0:")


def retry_after_is_honoured(t):
    fault = {"fault": "status", "status": 503, "headers": {"Retry-After": "2"}, "times": 1}
    answer, paths, requests = service(t, [fault], within=6)
    good(answer)
    assert requests[1]["time"] - requests[0]["time"] >= 1.99


def repeats_are_spread(t):
    """Machines that boot at once do not ask at once: the waits double, and each is drawn by lot."""
    firsts = []
    for _ in range(3):
        _, _, requests = service(t, [{"fault": "status", "status": 503}], deadline=4)
        times = [r["time"] for r in requests]
        gaps = [b - a for a, b in zip(times, times[1:])]
        for n, gap in enumerate(gaps[:3]):
            assert 0.12 * 2 ** n <= gap <= 0.5 * 2 ** n, gaps
        firsts.append(gaps[0])
    assert max(firsts) - min(firsts) > 0.001, firsts


def no_proxy_from_the_environment(t):
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    os.environ.update({name: "http://10.0.0.99:3128" for name in names})
    try:
        good(service(t, within=3)[0])
    finally:
        for name in names:
            del os.environ[name]


def retry_after_beyond_the_deadline(t):
    fault = {"fault": "status", "status": 503, "headers": {"Retry-After": "3600"}}
    bad(service(t, [fault], deadline=4)[0], "503 Service Unavailable")


def always_unavailable(t):
    answer, paths, _ = service(t, [{"fault": "status", "status": 503}], deadline=5)
    bad(answer, "503")
    assert 4 <= len(paths) <= 12, len(paths)


def garbage_for_an_answer(t):
    bad(service(t, [{"fault": "garbage"}], deadline=20, within=11)[0], "not an HTTP answer")


def endless_headers(t):
    bad(service(t, [{"fault": "headers"}], deadline=10)[0])


def a_redirect_elsewhere(t):
    fault = {"fault": "status", "status": 302, "headers": {"Location": "http://10.0.0.2/evil"}}
    answer, paths, _ = service(t, [fault], deadline=20, within=11)
    bad(answer, "redirected to http://10.0.0.2")
    assert not [p for _, p in paths if p == "/evil"]


def a_redirect_at_home(t):
    docs = dict(NOVA)
    docs["/elsewhere"] = docs.pop(f"{VERSION}/meta_data.json")
    docs[f"{VERSION}/meta_data.json"] = {"status": 301, "headers": {"Location": "/elsewhere"}}
    good(service(t, docs=docs, within=3)[0])


def ten_gigabytes_of_user_data(t):
    for fault in ("huge", "endless"):
        answer = service(t, [{"fault": fault, "path": "user_data"}], within=5)[0]
        good(answer, WHOLE - {"user_data"})
        assert "larger than" in answer["instance"]["problems"][0], answer["instance"]["problems"]


def everything_is_404(t):
    answer, paths, _ = service(t, docs={}, deadline=20, within=11)
    bad(answer, "no OpenStack metadata")
    assert len(paths) == 3, paths


def another_service_says_200(t):
    for text in ("<html>Welcome</html>", '{"hello": "world"}', "", "[]"):
        answer = service(t, docs={p: text for p in NOVA}, deadline=20, within=11)[0]
        bad(answer)


def an_old_nova(t):
    old = {p.replace("2018-08-27", "2015-10-15"): d for p, d in NOVA.items()}
    old["/openstack"] = "2012-08-10\n2013-10-17\n2015-10-15\nlatest\n"
    answer, paths, _ = service(t, docs=old, within=3)
    good(answer, WHOLE - {"vendor_data2"})
    assert len(paths) == 6, paths


def only_latest(t):
    latest = {p.replace("2018-08-27", "latest"): d for p, d in NOVA.items() if p != "/openstack"}
    answer, paths, _ = service(t, docs=latest, within=3)
    good(answer)


def missing_and_empty_documents(t):
    docs = dict(NOVA, **{f"{VERSION}/vendor_data.json": "", f"{VERSION}/network_data.json": {"status": 404}})
    del docs[f"{VERSION}/user_data"]
    answer = service(t, docs=docs, type="application/octet-stream", within=3)[0]
    good(answer, {"metadata", "vendor_data2"})
    assert answer["instance"]["problems"] == [], answer["instance"]["problems"]


def injected_files(t):
    """The files that the metadata names are fetched; one that is missing, and one that would lead elsewhere, is told."""
    named = [{"path": f"/etc/injected-{n}", "content_path": path} for n, path in
             enumerate(("/content/0000", "/content/0001", "/content/0002", "/../latest/user-data"))]
    metadata = {"uuid": UUID, "hostname": "node-1", "files": named}
    docs = dict(NOVA, **{f"{VERSION}/meta_data.json": json.dumps(metadata), "/openstack/content/0000": "first\n",
                         "/openstack/content/0001": {"base64": "AP8="}, "/latest/user-data": "SECRET"})
    answer, paths, _ = service(t, docs=docs, within=3)
    instance = good(answer)["instance"]
    assert [path for path, _ in instance["files"]] == ["/etc/injected-0", "/etc/injected-1"], instance["files"]
    assert [p for _, p in paths if "content" in p] == [f"/openstack/content/000{n}" for n in range(3)], paths
    assert len(paths) == 8 and not [p for _, p in paths if "user-data" in p], paths
    assert len(instance["problems"]) == 2 and "files[2]" in instance["problems"][0], instance["problems"]


def any_content_type(t):
    for kind in ("text/html; charset=utf-8", "application/json", "nonsense", ""):
        good(service(t, type=kind, within=3)[0])


def a_broken_vendor_data_service(t):
    answer, paths, _ = service(t, [{"fault": "status", "status": 500, "path": "vendor_data2"}], deadline=30, within=10)
    good(answer, WHOLE - {"vendor_data2"})
    assert "vendor_data2.json: 500" in answer["instance"]["problems"][0], answer["instance"]["problems"]
    assert len([p for _, p in paths if "vendor_data2" in p]) == 5, paths


def names_of_block_devices(t):
    docs = dict(NOVA)
    docs["/latest/meta-data/block-device-mapping/"] = "ami\nephemeral0\nroot"
    for name, device in (("ami", "vda"), ("ephemeral0", "vdb"), ("root", "/dev/vda")):
        docs[f"/latest/meta-data/block-device-mapping/{name}"] = device
    disks = {"sys/block/vda/size": "100", "sys/block/vdb/size": "100", "sys/block/sr0/size": "8"}
    answer = good(service(t, docs=docs, machine=disks, within=3)[0])
    mapping = answer["instance"]["device_names"]
    assert mapping == {"ami": "vda", "ephemeral0": "vdb", "root": "/dev/vda"}, mapping


def configured_addresses(t):
    docs = {f"/base{p}": d for p, d in NOVA.items()}
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": docs, "port": 8775})
        line = "ds=openstack;metadata_urls=http://10.0.0.2:8775/base/"
        answer = good(t.ask(lab, "OpenStack", 8, within=3, cmdline=line))
        assert answer["place"] == "http://10.0.0.2:8775/base", answer["place"]
        image = 'config={"datasource": {"OpenStack": {"metadata_urls": ["http://10.0.0.2:8775/base"]}}}'
        good(t.ask(lab, "OpenStack", 8, image, within=3))


def one_connection_for_the_first_and_the_next(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 8, within=3))
        assert len(lab.said("connected")) <= 4, len(lab.said("connected"))


# What the image says about the service

def image(**settings):
    return "config=" + json.dumps({"datasource": {"OpenStack": settings}})


def with_image(t, settings, faults=(), deadline=20, **more):
    """As `service`, with the image's `datasource: {OpenStack: …}`; only by IPv4, which the counts are of."""
    with Lab() as lab:
        stand(lab)
        run("ip", "netns", "exec", lab.client, "sysctl", "-q", "net.ipv6.conf.c0.disable_ipv6=1")
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": list(faults)})
        answer = t.ask(lab, "OpenStack", deadline, image(**settings), **more)
        return answer, lab.said("http")


def max_wait(t):
    """How long the service is looked for; a number below zero is one request, and those that it asks for."""
    down = {"fault": "status", "status": 503}
    answer, requests = with_image(t, {"max_wait": 2}, [down], within=9)
    bad(answer, "503")
    assert requests[-1]["time"] - requests[0]["time"] <= 2.1 and len(requests) >= 2, len(requests)
    for least in (-1, 0):
        answer, requests = with_image(t, {"max_wait": least}, [down], within=9)
        bad(answer, "503", "1 try")
        assert len(requests) == 1, len(requests)
    later = dict(down, headers={"Retry-After": "1"}, times=1)
    answer, requests = with_image(t, {"max_wait": -1}, [later], within=6)
    good(answer)
    # It ends when the service is found: what comes after takes its time.
    slow = dict(down, path="user_data", times=4)
    good(with_image(t, {"max_wait": 1}, [slow], within=9)[0])
    # And it is never longer than the stage has.
    bad(with_image(t, {"max_wait": 300}, [down], deadline=4)[0], "503")


def timeout(t):
    """How long one attempt takes."""
    answer, requests = with_image(t, {"timeout": 1}, [{"fault": "silent", "times": 2}], within=7)
    good(answer)
    assert 0.9 <= requests[1]["time"] - requests[0]["time"] <= 2, requests
    answer, _ = with_image(t, {"timeout": "1"}, [{"fault": "drip", "times": 1}], within=5)
    good(answer)


def retries(t):
    """How often a document is asked for again once the service was found."""
    down = {"fault": "status", "status": 500, "path": "user_data"}
    answer, requests = with_image(t, {"retries": 1}, [down], within=6)
    good(answer, WHOLE - {"user_data"})
    assert len([r for r in requests if r["path"].endswith("user_data")]) == 2, requests
    answer, requests = with_image(t, {"retries": 0}, [down], within=4)
    assert len([r for r in requests if r["path"].endswith("user_data")]) == 1, requests
    # Looking for the service is not limited by it.
    good(with_image(t, {"retries": 0}, [{"fault": "reset", "times": 2}], within=5)[0])


def apply_network_config(t):
    good(with_image(t, {"apply_network_config": False}, within=4)[0], WHOLE - {"network"})
    good(with_image(t, {"apply_network_config": True}, within=4)[0])


def a_setting_that_is_no_number(t):
    answer, _ = with_image(t, {"max_wait": "soon", "timeout": [], "retries": None}, within=4)
    good(answer)
    for line in ("datasource: OpenStack: max_wait: expected a whole number", "datasource: OpenStack: timeout: expected"):
        assert line in answer["log"], answer["log"]


# Ec2

MAC = Lab.mac(0)
TREE = {
    "instance-id": "i-0123456789abcdef0", "local-hostname": "ip-10-0-0-5.eu-west-1.compute.internal", "ami-launch-index": "0",
    "placement/availability-zone": "eu-west-1b", "public-keys/0/openssh-key": "ssh-rsa AAAA key one",
    f"network/interfaces/macs/{MAC}/device-number": "0", f"network/interfaces/macs/{MAC}/local-ipv4s": "10.0.0.5\n10.0.0.6",
    f"network/interfaces/macs/{MAC}/subnet-ipv4-cidr-block": "10.0.0.0/24", "block-device-mapping/ami": "xvda",
    "iam/info": '{"Code": "Success"}', "iam/security-credentials/role": "SECRET",
}


def ec2_docs(version, tree=TREE, **more):
    """The tree as documents: every value, and a listing for every folder."""
    docs = {f"/{version}/meta-data/{path}": text for path, text in tree.items()}
    for path in tree:
        parts = path.split("/")
        for n, part in enumerate(parts):
            folder = f"/{version}/meta-data/" + "".join(p + "/" for p in parts[:n])
            entry = "0=key one" if parts[:n] == ["public-keys"] else part + "/" * (n + 1 < len(parts))
            lines = docs.setdefault(folder, "").split("\n")
            docs[folder] = "\n".join(line for line in dict.fromkeys([*lines, entry]) if line)
    docs[f"/{version}/dynamic/instance-identity/document"] = '{"region": "eu-west-1", "instanceId": "i-0123456789abcdef0"}'
    docs[f"/{version}/user-data"] = "#!/bin/sh\n"
    return {k: v for k, v in dict(docs, **more).items() if v is not None}


#: A machine of AWS, with the lab's link.
AWS = {"product_uuid": "ec2e1916-9099-7caf-fd21-012345abcdef", "sys/class/net/c0/address": MAC}


#: A "no" for Ec2 comes late: IPv6 may still lead to its other address, if a router advertises itself.
LATE = 11


def ec2(t, docs, machine=AWS, within=4, deadline=30, **http):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http=dict({"docs": docs}, **http))
        answer = t.ask(lab, "Ec2", deadline, machine=machine, within=within)
        return answer, lab.said("http")


def ec2_with_a_token(t):
    answer, requests = ec2(t, ec2_docs("2021-03-23"), token=True)
    instance = good(answer, {"metadata", "user_data", "network"})["instance"]
    assert (instance["instance_id"], instance["cloud_name"], instance["region"]) == \
        ("i-0123456789abcdef0", "aws", "eu-west-1"), instance
    assert instance["public_keys"] == ["ssh-rsa AAAA key one"], instance["public_keys"]
    assert instance["metadata"]["iam"]["info"] == {"Code": "Success"}
    assert instance["network"]["data"]["ethernets"]["c0"]["addresses"] == ["10.0.0.6/24"], instance["network"]
    assert instance["device_names"] == {"ami": "xvda"}
    assert "SECRET" not in json.dumps(answer), "credentials must not be read"
    assert requests[0]["http"] == "PUT" and requests[0]["headers"]["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
    tokens = [r for r in requests[1:] if "x-aws-ec2-metadata-token" not in r["headers"]]
    assert not tokens and len([r for r in requests if r["http"] == "PUT"]) == 1, tokens
    assert "token-" not in answer["log"], "a token is a secret"
    return f"{answer['requests']} requests"


def ec2_token_that_ends(t):
    faults = [{"fault": "status", "status": 401, "path": "/meta-data/placement", "times": 1}]
    good(ec2(t, ec2_docs("2021-03-23"), token=True, faults=faults)[0], {"metadata", "user_data", "network"})


def ec2_switched_off(t):
    faults = [{"fault": "status", "status": 403, "path": "api/token"}]
    bad(ec2(t, ec2_docs("2021-03-23"), faults=faults, within=LATE)[0], "switched off", "403")


def ec2_must_have_a_token_on_aws(t):
    answer, requests = ec2(t, ec2_docs("2021-03-23"), within=LATE)
    bad(answer, "PUT http://169.254.169.254/latest/api/token: 404")
    assert all(r["http"] == "PUT" for r in requests), "no version 1 on AWS"


def ec2_of_another_hand(t):
    other = {"product_serial": "srv-abc.gb1.brightbox.com"}
    answer, requests = ec2(t, ec2_docs("2009-04-04"), machine=other)
    instance = good(answer, {"metadata", "user_data"})["instance"]
    assert instance["cloud_name"] == "brightbox", instance
    assert not [r for r in requests if r["http"] == "PUT"]
    # The same, of a hand that asks for tokens.
    good(ec2(t, ec2_docs("2009-04-04"), machine=other, token=True)[0], {"metadata", "user_data"})


def ec2_without_user_data_and_identity(t):
    docs = ec2_docs("2021-03-23", **{"/2021-03-23/user-data": None, "/2021-03-23/dynamic/instance-identity/document": None})
    answer = ec2(t, docs, token=True)[0]
    instance = good(answer, {"metadata", "network"})["instance"]
    assert instance["region"] == "eu-west-1" and instance["problems"] == [], instance


def ec2_any_answer_is_not_an_instance(t):
    docs = {f"/{v}/meta-data/instance-id": "<html>" for v in ("2021-03-23", "2009-04-04")}
    bad(ec2(t, docs, machine={}, within=LATE)[0], "another service")


def ec2_settings_of_the_image(t):
    """Addresses, times, and whether all of the network that the metadata describes is wanted."""
    with Lab() as lab:
        stand(lab)
        run("ip", "netns", "exec", lab.client, "sysctl", "-q", "net.ipv6.conf.c0.disable_ipv6=1")
        faults = [{"fault": "status", "status": 503, "times": 1, "path": "api/token"}]
        lab.serve(dhcp={"s0": neutron()}, http={"docs": ec2_docs("2021-03-23"), "token": True, "port": 8773, "faults": faults})
        ask = lambda **settings: t.ask(lab, "Ec2", 30, "config=" + json.dumps({"datasource": {"Ec2": settings}}), machine=AWS, within=9)
        urls = ["http://10.0.0.2:8773/"]
        bad(ask(metadata_urls=urls, max_wait=-1), "503")
        whole = good(ask(metadata_urls=urls, max_wait=5, timeout=2), {"metadata", "user_data", "network"})
        assert whole["place"] == "http://10.0.0.2:8773", whole["place"]
        assert "addresses" in whole["instance"]["network"]["data"]["ethernets"]["c0"], whole["instance"]["network"]
        small = ask(metadata_urls=urls[0], apply_full_imds_network_config=False)["instance"]["network"]["data"]
        assert list(small["ethernets"]) == ["c0"] and "addresses" not in small["ethernets"]["c0"], small


def ec2_by_ipv6(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", "fd00:ec2::254/128", "dev", "lo", "nodad")
        lab.ip(lab.server, "route", "add", "fd00:1::/64", "dev", "s0")
        lab.ip(lab.server, "addr", "add", "fe80::1/64", "dev", "s0", "nodad")
        # Only what forwards calls itself a router in neighbour discovery, and is kept as one.
        run("ip", "netns", "exec", lab.server, "sysctl", "-q", "net.ipv6.conf.all.forwarding=1")
        lab.serve(ra={"s0": "fd00:1::"}, http={"docs": ec2_docs("2021-03-23"), "token": True})
        answer = good(t.ask(lab, "Ec2", 30, machine=AWS, within=10), {"metadata", "user_data", "network"})
        assert answer["place"] == "http://[fd00:ec2::254]", answer["place"]


def openstack_before_ec2(t):
    """A nova answers for both; one that has only the tree is Ec2's."""
    both = dict(NOVA, **ec2_docs("2009-04-04"))
    for docs, source in ((both, "OpenStack"), (ec2_docs("2009-04-04"), "Ec2")):
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": docs})
            answer = t.ask(lab, "OpenStack,Ec2", 20, within=4)
            assert answer["ok"] and answer["instance"]["source"] == source, answer


# NoCloud over the network

def seed_docs(folder="/seed/"):
    return {f"{folder}meta-data": "instance-id: iid-7\nlocal-hostname: web\n", f"{folder}user-data": "#cloud-config\n"}


def a_seed_by_name(t):
    with Lab() as lab:
        stand(lab)
        lease = neutron()
        lease["options"]["15"] = "example.org".encode().hex()
        lab.serve(dhcp={"s0": lease}, dns={"seed.example.org": "10.0.0.2"}, http={"docs": seed_docs()})
        for host in ("seed.example.org", "seed"):
            line = f"ds=nocloud;s=http://{host}/seed/;h=first"
            instance = good(t.ask(lab, "NoCloud", 8, within=3, cmdline=line), {"metadata", "user_data"})["instance"]
            assert (instance["instance_id"], instance["local_hostname"]) == ("iid-7", "first"), instance
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline="ds=nocloud;s=http://nowhere.example.org/"), "host name")


def a_seed_by_serial_number(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": seed_docs("/sn-42/")})
        line = "ds=nocloud;s=http://10.0.0.2/__dmi.system-serial-number__"
        answer = t.ask(lab, "NoCloud", 8, within=3, cmdline=line, machine={"product_serial": "sn-42"})
        good(answer, {"metadata", "user_data"})


def a_seed_that_moved(t):
    with Lab() as lab:
        stand(lab)
        moved = {"/seed/meta-data": {"status": 302, "headers": {"Location": "http://10.0.0.2/new/meta-data"}}}
        lab.serve(dhcp={"s0": neutron()}, http={"docs": dict(seed_docs(), **moved, **seed_docs("/new/"))})
        good(t.ask(lab, "NoCloud", 8, within=3, cmdline="ds=nocloud;s=http://169.254.169.254/seed/"), {"metadata", "user_data"})


def no_seed_there(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": {}})
        line = "ds=nocloud;s=http://10.0.0.2/seed/?token=SECRET"
        answer = bad(t.ask(lab, "NoCloud", 8, within=8, cmdline=line), "there is no meta-data at http://10.0.0.2/seed/")
        assert "SECRET" not in answer["log"] + answer["error"]


def a_seed_by_https(t):
    with Lab() as lab:
        stand(lab)
        certificates = os.path.join(lab.folder.name, "tls")
        try:
            make_certificates(certificates)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip("no openssl to make certificates with") from error
        lab.serve(dhcp={"s0": neutron()}, dns={"seed.example.org": "10.0.0.2"},
                  http={"docs": seed_docs(), "port": 443, "tls": certificates})
        with open(f"{certificates}/ca.pem") as file:
            authority = file.read()
        line = "ds=nocloud;s=https://seed.example.org/seed/"
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline=line), "CA certificates")
        image = {"etc/ssl/certs/ca-certificates.crt": authority}
        good(t.ask(lab, "NoCloud", 8, within=4, cmdline=line, machine=image), {"metadata", "user_data"})
        other = {"etc/ssl/certs/ca-certificates.crt": open(f"{certificates}/other.pem").read()}
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline=line, machine=other), "certificate")


def make_certificates(folder):
    os.makedirs(folder)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        run("openssl", "req", "-x509", *key, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem",
            "-subj", f"/CN={name}")
    run("openssl", "req", *key[:-2], "-keyout", f"{folder}/server.key", "-out", f"{folder}/server.csr", "-subj", "/CN=seed")
    with open(f"{folder}/names", "w") as file:
        file.write("subjectAltName=DNS:seed.example.org\n")
    run("openssl", "x509", "-req", "-in", f"{folder}/server.csr", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key",
        "-days", "2", "-extfile", f"{folder}/names", "-out", f"{folder}/server.pem")


# Time

def round_trips(t):
    """From the start to data in hand, at several delays: DHCP 2, ARP 1, connection 1, first document 1, the others 2."""
    times = []
    for delay in (0, 10, 100):
        with Lab(delay=delay / 2000) as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
            answer = good(t.ask(lab, "OpenStack", 20, within=6))
            times.append((delay, answer["seconds"]))
    base = times[0][1]
    trips = [(seconds - base) / (delay / 1000) for delay, seconds in times if delay]
    assert trips[1] <= 8, f"{trips[1]:.1f} round trips at 100 ms"
    said = ", ".join(f"{delay} ms: {seconds:.3f} s" for delay, seconds in times)
    return f"{said}: {trips[0]:.1f} and {trips[1]:.1f} round trips"


def all_of(module):
    """A module's cases: its functions of one argument `t`, in their order."""
    return [case for case in list(module.values())
            if callable(case) and getattr(case, "__code__", None) and case.__code__.co_varnames[:1] == ("t",)
            and case.__code__.co_argcount == 1 and case.__module__ == module["__name__"]]


ALL = all_of(globals())
