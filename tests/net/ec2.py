"""The EC2 metadata service and those that copy it."""

import json

import manual
from cases import NOVA, all_of, bad, good, neutron, stand
from lab import Lab, run

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
    manual.compare("Ec2", len(requests))
    return f"{answer['requests']} requests"


def ec2_token_that_ends(t):
    faults = [{"fault": "status", "status": 401, "path": "/meta-data/placement", "times": 1}]
    good(ec2(t, ec2_docs("2021-03-23"), token=True, faults=faults)[0], {"metadata", "user_data", "network"})


def ec2_in_trouble(t):
    """It asks for patience, is silent once, lacks a part, or is something else."""
    docs = ec2_docs("2021-03-23")
    later = {"fault": "status", "status": 429, "path": "api/token", "headers": {"Retry-After": "1"}, "times": 1}
    good(ec2(t, docs, token=True, faults=[later], within=6)[0], {"metadata", "user_data", "network"})
    lost = {"fault": "reset", "path": "user-data", "times": 1}
    good(ec2(t, docs, token=True, faults=[lost], within=6)[0], {"metadata", "user_data", "network"})
    gap = {"fault": "status", "status": 404, "path": "/meta-data/placement"}
    instance = good(ec2(t, docs, token=True, faults=[gap], within=6)[0], {"metadata", "user_data", "network"})["instance"]
    assert instance["instance_id"] == TREE["instance-id"] and "placement" not in json.dumps(instance["metadata"]), instance
    bad(ec2(t, docs, token=True, faults=[{"fault": "garbage"}], within=LATE)[0], "not an HTTP answer")


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


def ec2_by_every_hand_and_version(t):
    hands = {"brightbox": {"product_serial": "srv-abc.gb1.brightbox.com"}, "zstack": {"chassis_asset_tag": "a.zstack.io"},
             "e24cloud": {"sys_vendor": "e24cloud"}, "tilaa": {"sys_vendor": "Tilaa"}, "unknown": {"sys_vendor": "QEMU"},
             "outscale": {"sys_vendor": "3DS Outscale", "product_name": "3DS Outscale VM"}}
    versions = ["2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "2009-04-04", "2021-03-23"]
    for (name, machine), version in zip(hands.items(), versions):
        answer, requests = ec2(t, ec2_docs(version), machine=machine)
        instance = good(answer, {"metadata", "user_data"})["instance"]
        assert instance["cloud_name"] == name and instance["instance_id"] == TREE["instance-id"], instance
        used = {r["path"].split("/")[1] for r in requests if r["path"].endswith("user-data")}
        assert used == {version}, used


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


ALL = all_of(globals())
