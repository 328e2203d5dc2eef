"""The cases of tests/net: each makes its lab, asks, and checks what came, how long it took, and what is left. Here their tools,
and the cases of links, DHCP, the kernel command line and names."""

import json
import os
import threading
import time

import manual
from lab import Lab, route121, run

UUID = "7f3e0c4a-5f3b-4a53-9e7d-6a3e0c1f2b3d"
METADATA = "169.254.169.254"
VERSION = "/openstack/2018-08-27"
#: What a nova of today has.
NOVA = {
    "/openstack": "2012-08-10\n2013-04-04\n2018-08-27\n2020-10-14\nlatest",
    f"{VERSION}/meta_data.json": json.dumps({"uuid": UUID, "hostname": "node-1.example.org", "name": "node-1"}),
    f"{VERSION}/user_data": "#cloud-config\nruncmd: [\"true\"]\n",
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
        manual.compare("OpenStack", answer["requests"])
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


def a_link_local_address_is_for_the_service_only(t):
    """As seen in a network that is kept: no router, nothing but the link's own network."""
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", f"{METADATA}/16", "dev", "s0")
        lab.serve(http={"docs": NOVA})
        good(lab.ask(t.program, "OpenStack", "20", f"machine={lab.machine()}", "keep"))
        state = lab.state()
        own = [(address, length) for link, address, length in state["addresses"] if link == "c0" and "." in address]
        assert len(own) == 1 and own[0][0].startswith("169.254.") and own[0][1] == 16, own
        main = [route for route in state["routes-4"] if "'local'" not in route]
        assert len(main) == 1 and "'169.254.0.0/16'" in main[0], main


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
               "28": ip("10.0.0.255"), "66": b"tftp.example".hex(), "67": b"boot.img".hex(), "33": ip("192.168.7.7", "10.0.0.9"), "42": ip("10.0.0.9"),
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
        said = lease.pop("options")
        assert options.items() <= said.items(), (options, said)
        assert lease == {"link": "c0", "address": "10.0.0.5", "prefix": 24, "broadcast": "10.0.0.255", "dns": ["9.9.9.9", "10.0.0.2"],
                         "ntp": ["10.0.0.9"], "domain": "example.org", "search": ["eng.example.org", "lab.example.org"],
                         "host-name": "node-9", "mtu": 1400, "server": "10.0.0.2", "seconds": 3600,
                         "next-server": "10.0.0.2"}, lease
        for message in lab.said("dhcp"):
            missing = {1, 3, 6, 12, 15, 26, 28, 33, 42, 51, 54, 66, 67, 119, 121, 245, 249} - set(message["parameters"])
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
        assert all(abs(m["secs"] - (m["time"] - times[0])) <= 1.1 for m in lab.said("dhcp")), lab.said("dhcp")


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


def a_link_that_another_program_has_configured_since_stays_up(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        record = f"record={lab.folder.name}/net/changes.json"
        machine = f"machine={lab.machine()}"
        assert lab.ask(t.program, "OpenStack", "20", machine, record, "die")["status"] == 9
        lab.ip(lab.client, "address", "add", "192.0.2.7/24", "dev", "c0")
        lab.ask(t.program, "OpenStack", "2", machine, record)
        state = lab.state()
        assert ("c0", "192.0.2.7", 24) in state["addresses"], state["addresses"]
        assert ("c0", "10.0.0.5", 24) not in state["addresses"], state["addresses"]
        assert ",UP" in lab.ip(lab.client, "-o", "link", "show", "c0").stdout, "a link in use was set down"


def only_the_pinned_dhcp_server_is_believed(t):
    with Lab(links=2) as lab:
        stand(lab, 0)
        stand(lab, 1)
        lab.serve(dhcp={"s0": neutron(0), "s1": neutron(1)}, http={"docs": NOVA})
        good(t.ask(lab, "OpenStack", 20, cmdline="prepivot.network=server:10.0.1.2", within=6))
        kinds = [(m["dhcp"], m["kind"]) for m in lab.said("dhcp")]
        assert ("s1", 3) in kinds and ("s0", 3) not in kinds, kinds
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        answer = t.ask(lab, "OpenStack", 3, cmdline="prepivot.network=mac:02:00:00:00:00:99")
        assert not answer["ok"] and not lab.said("dhcp"), (answer, lab.said("dhcp"))


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
        # IPv6 brings addresses and routes of its own a while after a link was set up.
        run("ip", "netns", "exec", lab.client, "sysctl", "-q", "net.ipv6.conf.c0.disable_ipv6=1")
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
        long = "a-name-that-is-longer-than-any-link-has"
        lab.ip(lab.client, "link", "property", "add", "dev", "c0", "altname", "enp1s0", "altname", long)
        answer, now = rename(t, lab, "c1=enp1s0")
        assert answer["ok"] and now == "c0 c1", (answer, now)
        answer, now = rename(t, lab, "c0=enp1s0")
        assert answer["ok"] and now == "enp1s0 c1", (answer, now)
        assert alternatives(lab) == [long], alternatives(lab)


def alternatives(lab):
    links = json.loads(run("ip", "-n", lab.client, "-j", "link").stdout)
    return [name for link in links for name in link.get("altnames", [])]


def names(lab):
    return {link["address"]: link["ifname"] for link in lab.state()["links"] if link["ifname"] not in ("lo", "br0")}


def all_of(module):
    """A module's cases: its functions of one argument `t`, in their order."""
    return [case for case in list(module.values())
            if callable(case) and getattr(case, "__code__", None) and case.__code__.co_varnames[:1] == ("t",)
            and case.__code__.co_argcount == 1 and case.__module__ == module["__name__"]]


ALL = all_of(globals())
