"""OpenStack's metadata service: its documents, its faults, what the image says about it, and how long it all takes."""

import json
import os
import re

from cases import NOVA, UUID, VERSION, WHOLE, all_of, bad, good, neutron, stand
from lab import Lab, run


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
    bad(service(t, [{"fault": "silent"}], deadline=4)[0], "no complete answer")


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
    good(answer)
    assert len(paths) == 7, paths


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
    # Only names that a configuration may use are asked for.
    assert mapping == {"ephemeral0": "vdb"}, mapping


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


ALL = all_of(globals())
