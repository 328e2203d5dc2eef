"""The cases of tests/net: each makes its lab, asks, and checks what came, how long it took, and what is left."""

import json

from lab import Lab, run

UUID = "7f3e0c4a-5f3b-4a53-9e7d-6a3e0c1f2b3d"
METADATA = "169.254.169.254"
VERSION = "/openstack/2018-08-27"
#: What a nova of today has.
NOVA = {
    "/openstack": "2012-08-10\n2013-04-04\n2018-08-27\n2020-10-14\nlatest",
    f"{VERSION}/meta_data.json": json.dumps({"uuid": UUID, "hostname": "node-1.example.org", "name": "node-1"}),
    f"{VERSION}/user_data": "#cloud-config\nruncmd: [true]\n",
    f"{VERSION}/vendor_data.json": "{}",
    f"{VERSION}/vendor_data2.json": '{"static": {}}',
    f"{VERSION}/network_data.json": '{"links": [], "networks": [], "services": []}',
}
#: The documents that a first boot needs.
WHOLE = {f"openstack/2018-08-27/{d}" for d in
         ("meta_data.json", "user_data", "vendor_data.json", "vendor_data2.json", "network_data.json")}


class Skip(Exception):
    pass


class Run:
    """One case's tools."""

    def __init__(self, program, verbose):
        self.program, self.verbose = program, verbose

    def ask(self, lab, source, deadline, *words, within=None, limit=60):
        """Asks; the answer must be there within so many seconds, and the namespace must be as it was before."""
        before = lab.state()
        answer = lab.ask(self.program, source, str(deadline), *words, "verbose", limit=limit)
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


def good(answer, files=WHOLE):
    assert answer["ok"], answer["error"]
    assert set(answer["files"]) == set(files), set(answer["files"]) ^ set(files)
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
        answer = good(t.ask(lab, "openstack", 20, within=3))
        assert answer["requests"] == 5, f"{answer['requests']} requests"
        assert answer["base"] == f"http://{METADATA} by c0", answer["base"]
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
        good(t.ask(lab, "openstack", 20, within=3))


def a_lease_without_routes(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "route", "add", "10.9.0.0/24", "dev", "s0")
        lab.serve(dhcp={"s0": {"address": "10.9.0.5", "server": "10.9.0.1"}}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=3))


def by_the_default_router(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": {"address": "10.0.0.5", "server": "10.0.0.2", "options": {"3": "0a000002"}}},
                  http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=3))


def a_router_outside_of_the_network(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "addr", "add", "192.168.77.1/32", "dev", "s0")
        lab.ip(lab.server, "route", "add", "10.0.0.5/32", "dev", "s0")
        lease = {"address": "10.0.0.5", "prefix": 32, "server": "10.0.0.2", "options": {"3": "c0a84d01"}}
        lab.serve(dhcp={"s0": lease}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=3))


def without_dhcp(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", f"{METADATA}/16", "dev", "s0")
        lab.serve(http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=7))
        assert all(r["peer"].startswith("::ffff:169.254.") for r in lab.said("http"))


def ipv6_only(t):
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", "fe80::a9fe:a9fe/64", "dev", "s0", "nodad")
        lab.serve(http={"docs": NOVA})
        answer = good(t.ask(lab, "openstack", 20, within=6))
        assert "fe80::a9fe:a9fe%25c0" in answer["base"], answer["base"]
        hosts = {r["headers"]["host"] for r in lab.said("http")}
        assert hosts == {"[fe80::a9fe:a9fe]"}, hosts
        return f"{answer['seconds']:.3f} s"


def rapid_commit(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(rapid=True)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=3))
        assert [m["kind"] for m in lab.said("dhcp")] == [1]


def split_options(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(long=True)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=3))


def a_refusal_then_a_lease(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(nak=1)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=4))
        assert [m["kind"] for m in lab.said("dhcp")] == [1, 3, 1, 3]


def only_refusals(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(nak=-1)}, http={"docs": NOVA})
        # The server's namespace answers for the service even to a link-local address; no DHCP is what is tried here.
        lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
        answer = bad(t.ask(lab, "openstack", 6), "c0", "refusals")
        count = len(lab.said("dhcp"))
        assert 4 <= count <= 24, f"{count} messages in 6 s"


def lost_messages(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(drop=2)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=5))
        messages = lab.said("dhcp")
        assert len({m["xid"] for m in messages}) == 1, "repeats are one transaction"


def a_slow_server(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(delay=1.5)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, within=9))


def no_answer(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(silent=True)})
        lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
        bad(t.ask(lab, "openstack", 6), "c0: no DHCP lease")
        times = [m["time"] for m in lab.said("dhcp")]
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert 0.3 <= gaps[0] <= 0.8 and gaps[1] >= gaps[0], gaps


def nonsense_for_dhcp(t):
    for fault in ("garbage", "wrong_xid"):
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron(**{fault: True})})
            lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
            bad(t.ask(lab, "openstack", 3), "no DHCP lease")


def no_carrier(t):
    with Lab() as lab:
        lab.ip(lab.server, "link", "set", "s0", "down")
        bad(t.ask(lab, "openstack", 3), "c0: no carrier")


def carrier_that_comes_late(t):
    with Lab() as lab:
        stand(lab)
        lab.ip(lab.server, "link", "set", "s0", "down")
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        import threading
        timer = threading.Timer(1.5, lab.ip, [lab.server, "link", "set", "s0", "up"])
        timer.start()
        try:
            answer = good(t.ask(lab, "openstack", 20, within=4))
        finally:
            timer.join()
        assert answer["seconds"] >= 1.4, answer["seconds"]


def no_links_at_all(t):
    with Lab(links=0) as lab:
        bad(t.ask(lab, "openstack", 20, within=1), "no network link")


# Several links

def one_of_two(t):
    for service in (0, 1):
        with Lab(links=2) as lab:
            other = 1 - service
            stand(lab, service)
            lab.serve(dhcp={f"s{service}": neutron(service), f"s{other}": neutron(other, silent=True)}, http={"docs": NOVA})
            answer = good(t.ask(lab, "openstack", 20, within=3))
            assert answer["base"].endswith(f"by c{service}"), answer["base"]


def the_first_of_two_leads_nowhere(t):
    """Both have a lease and a route to the service; behind the first nobody has it, and nobody says so."""
    with Lab(links=2, nowhere=[0]) as lab:
        stand(lab, 1)
        lab.ip(lab.nowhere, "addr", "add", "10.0.0.2/24", "dev", "s0")
        lab.serve(lab.nowhere, dhcp={"s0": neutron(0)})
        lab.serve(dhcp={"s1": neutron(1, delay=0.2)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "openstack", 20, within=3))
        assert answer["base"].endswith("by c1"), answer["base"]
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
        answer = good(t.ask(lab, "openstack", 20, within=4))
        assert answer["base"].endswith(f"by c{service}"), answer["base"]
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
        answer = good(t.ask(lab, "openstack", 20, within=3))
        assert answer["base"].endswith("by c0"), answer["base"]
        assert not [m for m in lab.said("dhcp") if m["dhcp"] == "s0"], "no DHCP on a link in use"


def an_enslaved_link_is_left_alone(t):
    with Lab(links=2) as lab:
        stand(lab, 1)
        lab.ip(lab.client, "link", "add", "br0", "type", "bridge")
        lab.ip(lab.client, "link", "set", "c0", "master", "br0")
        lab.serve(dhcp={"s0": neutron(0), "s1": neutron(1)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, "cmdline=ip=c0:dhcp ip=c1:dhcp", within=3))
        assert {m["dhcp"] for m in lab.said("dhcp")} == {"s1"}


def a_killed_run_is_taken_back_by_the_next(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        record = f"record={lab.folder.name}/net/changes.json"
        before = lab.state()
        assert lab.ask(t.program, "openstack", "20", record, "die")["status"] == 9
        assert lab.state() != before, "the killed run should have left something"
        answer = lab.ask(t.program, "openstack", "20", record)
        good(answer)
        assert lab.state() == before, difference(before, lab.state())


def kept_when_asked(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        good(lab.ask(t.program, "openstack", "20", "keep"))
        state = lab.state()
        assert ("c0", "10.0.0.5", 24) in state["addresses"], state["addresses"]


# The kernel command line

def a_fixed_address(t):
    with Lab(links=2) as lab:
        stand(lab, 0)
        lab.serve(dhcp={"s0": neutron(0), "s1": neutron(1)}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 20, "cmdline=ip=10.0.0.77::10.0.0.2:255.255.255.0:node:c0:none:1400", within=3))
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
        answer = good(t.ask(lab, "openstack", 20, "cmdline=vlan=vlan7:c0 ip=vlan7:dhcp", within=4))
        assert answer["base"].endswith("by vlan7"), answer["base"]


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
        line = "cmdline=bond=bond7:c0,c1:mode=active-backup,miimon=50:1400 ip=bond7:dhcp"
        answer = good(t.ask(lab, "openstack", 20, line, within=8))
        assert answer["base"].endswith("by bond7"), answer["base"]


def a_bridge(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(0)}, http={"docs": NOVA})
        answer = good(t.ask(lab, "openstack", 20, "cmdline=bridge=br7:c0 ip=br7:dhcp", within=20))
        assert answer["base"].endswith("by br7"), answer["base"]
        return f"{answer['seconds']:.1f} s"


def switched_off(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(0)}, http={"docs": NOVA})
        bad(t.ask(lab, "openstack", 20, "cmdline=ip=off", within=1))
        assert not lab.said("dhcp")


# Names

def names_are_swapped(t):
    with Lab(links=3) as lab:
        macs = [lab.mac(n) for n in range(3)]
        answer = lab.ask(t.program, "rename", f"{macs[0]}=c1", f"{macs[1]}=c2", f"{macs[2]}=c0")
        assert answer["ok"], answer["error"]
        assert names(lab) == {macs[0]: "c1", macs[1]: "c2", macs[2]: "c0"}, names(lab)
        lab.ip(lab.client, "link", "set", "c1", "up")
        answer = lab.ask(t.program, "rename", f"{macs[0]}=net0", f"{macs[1]}=c1")
        assert answer["ok"], answer["error"]
        assert names(lab) == {macs[0]: "net0", macs[1]: "c1", macs[2]: "c0"}, names(lab)
        assert any(link["ifname"] == "net0" and link["up"] for link in lab.state()["links"]), "it was up before"


def a_failed_swap_leaves_the_old_names(t):
    with Lab(links=3) as lab:
        macs = [lab.mac(n) for n in range(3)]
        before = names(lab)
        # The last name is one that the kernel refuses, after a cycle has begun.
        for wanted in ([f"{macs[0]}=c1", f"{macs[1]}=c0", f"{macs[2]}=bad/name"], [f"{macs[0]}=c1", f"{macs[1]}=c2"],
                       [f"{macs[0]}=x", "02:00:00:00:09:09=y"], [f"{macs[0]}=c1", f"{macs[1]}=c0", f"{macs[2]}={'n' * 16}"]):
            answer = lab.ask(t.program, "rename", *wanted)
            assert not answer["ok"] and names(lab) == before, (answer["error"], names(lab))


def names(lab):
    return {link["address"]: link["ifname"] for link in lab.state()["links"] if link["ifname"] != "lo"}


# The metadata service

def service(t, faults=(), docs=NOVA, deadline=8, **more):
    """Asks a service with faults, by a good lease; gives the answer, and the requests as (method, path)."""
    words, within = more.pop("words", ()), more.pop("within", None)
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http=dict({"docs": docs, "faults": list(faults)}, **more))
        answer = t.ask(lab, "openstack", deadline, *words, within=within)
        return answer, [(r["http"], r["path"]) for r in lab.said("http")], lab.said("http")


def nobody_listens(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()})
        answer = bad(t.ask(lab, "openstack", 5), "refused")
        assert 3 <= answer["requests"] <= 20, answer["requests"]


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


def retry_after_beyond_the_deadline(t):
    fault = {"fault": "status", "status": 503, "headers": {"Retry-After": "3600"}}
    bad(service(t, [fault], deadline=4)[0], "503 Service Unavailable")


def always_unavailable(t):
    answer, paths, _ = service(t, [{"fault": "status", "status": 503}], deadline=5)
    bad(answer, "503")
    assert 4 <= len(paths) <= 12, len(paths)


def garbage_for_an_answer(t):
    bad(service(t, [{"fault": "garbage"}], deadline=20)[0], "not an HTTP answer")


def endless_headers(t):
    bad(service(t, [{"fault": "headers"}], deadline=10)[0])


def a_redirect_elsewhere(t):
    fault = {"fault": "status", "status": 302, "headers": {"Location": "http://10.0.0.2/evil"}}
    answer, paths, _ = service(t, [fault], deadline=20, within=20)
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
        good(answer, WHOLE - {"openstack/2018-08-27/user_data"})
        assert "larger than" in answer["problems"][0], answer["problems"]


def everything_is_404(t):
    answer, paths, _ = service(t, docs={}, deadline=20, within=20)
    bad(answer, "no OpenStack metadata")
    assert len(paths) == 3, paths


def another_service_says_200(t):
    for text in ("<html>Welcome</html>", '{"hello": "world"}', "", "[]"):
        answer = service(t, docs={p: text for p in NOVA}, deadline=20, within=20)[0]
        bad(answer)


def an_old_nova(t):
    old = {p.replace("2018-08-27", "2015-10-15"): d for p, d in NOVA.items()}
    old["/openstack"] = "2012-08-10\n2013-10-17\n2015-10-15\nlatest\n"
    answer, paths, _ = service(t, docs=old, within=3)
    good(answer, {f.replace("2018-08-27", "2015-10-15") for f in WHOLE if "vendor_data2" not in f})
    assert len(paths) == 6, paths


def only_latest(t):
    latest = {p.replace("2018-08-27", "latest"): d for p, d in NOVA.items() if p != "/openstack"}
    answer, paths, _ = service(t, docs=latest, within=3)
    good(answer, {f.replace("2018-08-27", "latest") for f in WHOLE})


def missing_and_empty_documents(t):
    docs = dict(NOVA, **{f"{VERSION}/vendor_data.json": "", f"{VERSION}/network_data.json": {"status": 404}})
    del docs[f"{VERSION}/user_data"]
    answer = service(t, docs=docs, type="application/octet-stream", within=3)[0]
    good(answer, {f for f in WHOLE if "meta_data" in f or "vendor_data2" in f})
    assert answer["problems"] == [], answer["problems"]


def a_broken_vendor_data_service(t):
    answer, paths, _ = service(t, [{"fault": "status", "status": 500, "path": "vendor_data2"}], deadline=30, within=10)
    good(answer, {f for f in WHOLE if "vendor_data2" not in f})
    assert "vendor_data2.json: 500" in answer["problems"][0], answer["problems"]
    assert len([p for _, p in paths if "vendor_data2" in p]) == 5, paths


def names_of_block_devices(t):
    docs = dict(NOVA)
    docs["/latest/meta-data/block-device-mapping/"] = "ami\nephemeral0\nroot"
    for name, device in (("ami", "vda"), ("ephemeral0", "vdb"), ("root", "/dev/vda")):
        docs[f"/latest/meta-data/block-device-mapping/{name}"] = device
    answer = service(t, docs=docs, words=["disks"], within=3)[0]
    good(answer, WHOLE | {"ec2/latest/meta-data.json"})
    mapping = json.loads(answer["files"]["ec2/latest/meta-data.json"])["block-device-mapping"]
    assert mapping == {"ami": "vda", "ephemeral0": "vdb", "root": "/dev/vda"}, mapping


def configured_addresses(t):
    docs = {f"/base{p}": d for p, d in NOVA.items()}
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": docs, "port": 8775})
        answer = good(t.ask(lab, "openstack", 8, "url=http://10.0.0.2:8775/base/", within=3))
        assert answer["base"] == "http://10.0.0.2:8775/base by c0", answer["base"]


def one_connection_for_the_first_and_the_next(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        good(t.ask(lab, "openstack", 8, within=3))
        assert len(lab.said("connected")) <= 4, len(lab.said("connected"))


# Seeds by name

def a_seed_by_name(t):
    with Lab() as lab:
        stand(lab)
        lease = neutron()
        lease["options"]["15"] = "example.org".encode().hex()
        lab.serve(dhcp={"s0": lease}, dns={"seed.example.org": "10.0.0.2"}, http={"docs": {"/seed/meta-data": "x: y"}})
        for host in ("seed.example.org", "seed"):
            answer = good(t.ask(lab, "get", 8, f"url=http://{host}/seed/meta-data", within=3), ["body"])
            assert answer["files"]["body"] == "x: y"
        bad(t.ask(lab, "get", 20, "url=http://nowhere.example.org/seed/meta-data", within=20), "host name")


# Time

def round_trips(t):
    """From the start to data in hand, at several delays: DHCP 2, ARP 1, connection 1, first document 1, the others 2."""
    times = []
    for delay in (0, 10, 100):
        with Lab(delay=delay / 2000) as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
            answer = good(t.ask(lab, "openstack", 20, within=6))
            times.append((delay, answer["seconds"]))
    base = times[0][1]
    trips = [(seconds - base) / (delay / 1000) for delay, seconds in times if delay]
    assert trips[1] <= 8, f"{trips[1]:.1f} round trips at 100 ms"
    said = ", ".join(f"{delay} ms: {seconds:.3f} s" for delay, seconds in times)
    return f"{said}: {trips[0]:.1f} and {trips[1]:.1f} round trips"


#: In the order of this file.
ALL = [case for name, case in list(globals().items())
       if callable(case) and getattr(case, "__code__", None) and case.__code__.co_varnames[:1] == ("t",)
       and case.__code__.co_argcount == 1 and case.__module__ == __name__]
