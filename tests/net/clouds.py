"""The clouds whose service is a few documents: each answers, and each has its faults. All of it is data."""

import json

import manual
from cases import METADATA, bad, good
from lab import Lab

MAC = Lab.mac(0)
KEYS = ["ssh-rsa AAAA one"]
USER_DATA = "#cloud-config\nruncmd: [\"true\"]\n"
DHCP_ON_IT = {"version": 1, "config": [{"type": "physical", "name": "eth7", "mac_address": MAC, "subnets": [{"type": "dhcp"}]}]}


def tree(root, **more):
    """A service with `user-data` and a tree of three values."""
    return dict({f"{root}/meta-data/": "instance-id\nlocal-hostname\navailability-zone", f"{root}/meta-data/instance-id": "i-1",
                 f"{root}/meta-data/local-hostname": "node-1", f"{root}/meta-data/availability-zone": "zone-1",
                 f"{root}/user-data": USER_DATA}, **more)


def put(text):
    return {"method": "PUT", "status": 200, "body": text}


#: machine: facts; docs: what the service has, of which `main` must be there and `user` has the user-data alone; token: where
#: a token is; settings: what the image has to say; lacks: parts that it never has; address: where it is; header: what each request for
#: `main` carries; otherwise: what the instance is known by where the service is not the cloud's.
CLOUDS = {
    "Akamai": {
        "machine": {"sys_vendor": "Akamai", "product_serial": "1"}, "main": "/v1/instance", "user": "/v1/user-data",
        "token": "/v1/token", "header": ("metadata-token", "tok"), "lacks": {"network"}, "otherwise": "the DMI serial number",
        "docs": {"/v1/token": put("tok"), "/v1/instance": json.dumps({"id": 1, "local-hostname": "node-1"}),
                 "/v1/user-data": USER_DATA},
    },
    "AliYun": {
        "machine": {"product_name": "Alibaba Cloud ECS"}, "address": "100.100.100.200", "id": "i-1",
        "main": "/2016-01-01/meta-data", "user": "/2016-01-01/user-data", "token": "/latest/api/token",
        "header": ("x-aliyun-ecs-metadata-token", "tok"),
        "docs": {"/latest/api/token": put("tok"), "/2016-01-01/user-data": USER_DATA, "/2016-01-01/meta-data/all": json.dumps(
            {"instance-id": "i-1", "hostname": "node-1", "network": {"interfaces": {"macs": {MAC: {}}}}})},
    },
    "Bigstep": {
        "machine": {"var/lib/cloud/data/seed/bigstep/url": f"http://{METADATA}/bigstep"}, "main": "/bigstep", "lacks": {"network"},
        "docs": {"/bigstep": json.dumps({"metadata": {"instance-id": 1}, "vendordata_raw": "", "userdata_raw": USER_DATA})},
    },
    "CloudCIX": {
        "machine": {"product_name": "CloudCIX"}, "main": "/v1/metadata",
        "docs": {"/v1/metadata": json.dumps({"instance-id": "1", "network": {"version": 2, "ethernets": {}}}),
                 "/v1/userdata": USER_DATA},
    },
    "CloudStack": {
        "machine": {"product_name": "CloudStack KVM Hypervisor"}, "address": "10.0.0.2", "id": "i-1",
        "main": "/latest/meta-data/instance-id", "user": "/latest/user-data", "lacks": {"network"}, "password": True,
        "docs": tree("/latest", **{"/": "s3cret"}),
    },
    "DigitalOcean": {
        "machine": {"sys_vendor": "DigitalOcean", "product_serial": "1"}, "main": "/metadata/v1.json",
        "docs": {"/metadata/v1.json": json.dumps({"droplet_id": 1, "user_data": USER_DATA, "interfaces": {"public": [
            {"mac": MAC, "type": "public", "ipv4": {"ip_address": "10.0.0.5", "netmask": "255.255.255.0"}}]}})},
    },
    "Exoscale": {
        "machine": {"product_name": "Exoscale Compute Platform"}, "id": "i-1", "main": "/1.0/meta-data/instance-id",
        "user": "/1.0/user-data", "lacks": {"network"}, "password": True, "docs": tree("/1.0", **{"/1.0/": "s3cret"}),
    },
    "GCE": {
        "machine": {"product_name": "Google Compute Engine"}, "header": ("metadata-flavor", "Google"),
        "main": "/computeMetadata/v1/instance/id", "user": "/computeMetadata/v1/instance/attributes",
        "docs": {"/computeMetadata/v1/instance/id": "1", "/computeMetadata/v1/instance/zone": "projects/1/zones/us-central1-f",
                 "/computeMetadata/v1/instance/hostname": "node-1.c.p.internal",
                 "/computeMetadata/v1/instance/attributes/?recursive=True": json.dumps({"user-data": USER_DATA}),
                 "/computeMetadata/v1/project/attributes/?recursive=True": "{}"},
    },
    "Hetzner": {
        "machine": {"sys_vendor": "Hetzner", "product_serial": "1"}, "main": "/hetzner/v1/metadata", "user": "/hetzner/v1/userdata",
        "docs": {"/hetzner/v1/metadata": json.dumps({"instance-id": 1, "hostname": "node-1", "network-config": DHCP_ON_IT}),
                 "/hetzner/v1/metadata/private-networks": "[]", "/hetzner/v1/userdata": USER_DATA},
    },
    "NWCS": {
        "machine": {"sys_vendor": "NWCS"}, "main": "/api/v1/metadata",
        "docs": {"/api/v1/metadata": json.dumps({"instance-id": "1", "hostname": "node-1", "public-keys": KEYS,
                                                 "network": DHCP_ON_IT, "userdata": USER_DATA})},
    },
    "Scaleway": {
        "machine": {"sys_vendor": "Scaleway"}, "address": "169.254.42.42", "main": "/conf?format=json",
        "user": "/user_data/cloud-init", "ports": True,
        "docs": {"/conf?format=json": json.dumps({"id": "1", "hostname": "node-1", "zone": "fr-par-1", "public_ips": [
            {"address": "10.0.0.5", "netmask": "32", "family": "inet"}]}), "/user_data/cloud-init": USER_DATA},
    },
    "Oracle": {
        "machine": {"chassis_asset_tag": "OracleCloud.com"}, "main": "/opc/v2/instance/",
        "header": ("authorization", "Bearer Oracle"),
        "docs": {"/opc/v2/instance/": json.dumps({"id": "1", "hostname": "node-1", "metadata": {
            "user_data": "I2Nsb3VkLWNvbmZpZwpydW5jbWQ6IFtbInRydWUiXV0K"}}), "/opc/v2/vnics/": json.dumps([
                {"macAddr": MAC, "privateIp": "10.0.0.5", "subnetCidrBlock": "10.0.0.0/24"}])},
    },
    "MAAS": {
        "settings": {"metadata_url": f"http://{METADATA}/MAAS/metadata/", "consumer_key": "a", "token_key": "b",
                     "token_secret": "c"}, "lacks": {"network"},
        "machine": {}, "main": "/MAAS/metadata/2012-03-01/meta-data/instance-id",
        "user": "/MAAS/metadata/2012-03-01/user-data",
        "docs": {"/MAAS/metadata/2012-03-01/meta-data/instance-id": "1",
                 "/MAAS/metadata/2012-03-01/meta-data/local-hostname": "node-1",
                 "/MAAS/metadata/2012-03-01/user-data": USER_DATA},
    },
    "UpCloud": {
        "machine": {"sys_vendor": "UpCloud", "product_uuid": "00322b68-0096-4042-9406-faad61922128"}, "main": "/metadata/v1.json",
        "docs": {"/metadata/v1.json": json.dumps({"instance_id": "1", "user_data": USER_DATA, "network": {
            "interfaces": [{"mac": MAC, "ip_addresses": [{"dhcp": True, "family": "IPv4"}]}]}})},
    },
    "Vultr": {
        "machine": {"sys_vendor": "Vultr"}, "main": "/v1.json", "header": ("metadata-token", "cloudinit"),
        "docs": {"/v1.json": json.dumps({"instance-v2-id": "1", "hostname": "", "user-data": USER_DATA, "interfaces": [
            {"mac": MAC, "ipv4": {"additional": []}, "ipv6": {"additional": []}}]})},
    },
}


def ask(t, name, faults=(), docs=None, within=6, deadline=10, **settings):
    """The answer of a cloud's service with these faults, and the requests that it got."""
    cloud = CLOUDS[name]
    machine = dict(cloud["machine"], **{"sys/class/net/c0/address": MAC, "sys/class/net/c0/type": "1",
                                        "sys/class/net/c0/device/uevent": ""})
    with Lab() as lab:
        lab.ip(lab.server, "addr", "add", "10.0.0.2/24", "dev", "s0")
        for address in {METADATA, cloud.get("address", METADATA)} - {"10.0.0.2"}:
            lab.ip(lab.server, "addr", "replace", f"{address}/32", "dev", "lo")
        lease = {"address": "10.0.0.5", "server": "10.0.0.2", "options": {"3": "0a000002", "6": "0a000002"}}
        http = {"docs": cloud["docs"] if docs is None else docs, "faults": list(faults), "ports": [80, 8080]}
        lab.serve(dhcp={"s0": lease}, dns={"data-server": "10.0.0.2", "metadata.google.internal": METADATA}, http=http)
        image = "config=" + json.dumps({"datasource": {name: dict(cloud.get("settings", {}), **settings)}})
        answer = t.ask(lab, name, deadline, image, within=within, machine=machine)
        return answer, lab.said("http")


def whole(name, answer, *missing):
    cloud = CLOUDS[name]
    parts = {"metadata", "user_data", "network"} - cloud.get("lacks", set()) - set(missing)
    instance = good(answer, parts)["instance"]
    assert instance["instance_id"] == cloud.get("id", "1"), instance
    return instance


def refused(name, answer, *words):
    """The service is not used."""
    otherwise = CLOUDS[name].get("otherwise")
    if otherwise is None:
        bad(answer, *words)
        return
    assert answer["ok"] and answer["place"] == otherwise and answer["instance"]["user_data"] is None, answer


def a_cloud(t, name):
    cloud = CLOUDS[name]
    main, user, token = cloud["main"], cloud.get("user"), cloud.get("token")
    answer, requests = ask(t, name)
    instance = whole(name, answer)
    assert instance["problems"] == [] and instance["from_network"], instance
    paths = [r["path"] for r in requests]
    manual.compare(name, len(requests))
    asked_twice = {p for p in paths if paths.count(p) > 1}
    assert not asked_twice, asked_twice
    if "header" in cloud:
        key, value = cloud["header"]
        assert all(r["headers"].get(key) == value for r in requests if r["path"].startswith(main)), requests
    if cloud.get("password"):
        assert instance["config"]["password"] == "s3cret", instance["config"]
        told = [r["headers"]["domu_request"] for r in requests if "domu_request" in r["headers"]]
        assert told == ["send_my_password"], told
        assert "s3cret" not in answer["log"], "a password is a secret"
    if cloud.get("ports"):
        assert all(r["port"] < 1024 for r in requests if "_data/" in r["path"]), requests
    # It asks for patience, and gets it.
    later = {"fault": "status", "status": 429, "path": main, "headers": {"Retry-After": "1"}, "times": 1}
    whole(name, ask(t, name, [later])[0])
    # One request of it is lost.
    whole(name, ask(t, name, [{"fault": "silent", "path": main, "times": 1}], timeout=1)[0])
    # What answers is not the cloud's service.
    refused(name, ask(t, name, docs={path: "<html>" for path in cloud["docs"]}, within=11)[0])
    refused(name, ask(t, name, [{"fault": "garbage", "path": main}], within=11)[0])
    refused(name, ask(t, name, [{"fault": "status", "status": 404, "path": main}], within=11)[0])
    if user:
        # An instance without user-data, and one whose user-data is in trouble for a moment.
        whole(name, ask(t, name, [{"fault": "status", "status": 404, "path": user}])[0], "user_data")
        whole(name, ask(t, name, [{"fault": "reset", "path": user, "times": 1}], within=9)[0])
    if token:
        refused(name, ask(t, name, [{"fault": "status", "status": 403, "path": token}], within=11)[0], "403")
    return f"{len(requests)} requests, {answer['seconds']:.3f} s"


def case(name):
    def run(t):
        return a_cloud(t, name)
    run.__name__ = f"cloud_{name}"
    return run


ALL = [case(name) for name in CLOUDS]
