"""Azure's metadata service and wire server."""

import json

import manual
from cases import METADATA, all_of, bad, good, neutron, stand
from lab import Lab, route121

INSTANCE = "/metadata/instance?api-version=2021-08-01&extended=true"
OLD_INSTANCE = "/metadata/instance?api-version=2019-06-01"
OWNERS = "/metadata/reprovisiondata?api-version=2019-06-01"
GOAL_STATE = "/machine/?comp=goalstate"
HEALTH = "/machine?comp=health"
UUID = "12345678-1234-1234-1234-123456789abc"
#: A machine of Azure's without UEFI.
AZURE = {"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77", "product_uuid": UUID}
SEED = "var/lib/cloud/seed/azure/ovf-env.xml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample one@host"


def metadata(pool="None", **compute):
    profile = {"adminUsername": "adm", "computerName": "vm1", "disablePasswordAuthentication": "true"}
    compute = dict({"location": "westus2", "platformFaultDomain": "2", "osProfile": profile, "publicKeys": [{"keyData": KEY}]}, **compute)
    address = {"ipAddress": [{"privateIpAddress": "10.0.0.5"}, {"privateIpAddress": "10.0.0.6"}], "subnet": [{"prefix": "24"}]}
    interface = {"macAddress": Lab.mac(0).replace(":", "").upper(), "ipv4": address, "ipv6": {"ipAddress": []}}
    return json.dumps({"compute": compute, "network": {"interface": [interface]},
                       "extended": {"compute": {"hasCustomData": False, "ppsType": pool}}})


def media(linux):
    return ('<Environment xmlns:wa="http://schemas.microsoft.com/windowsazure"><wa:ProvisioningSection>'
            f"<wa:LinuxProvisioningConfigurationSet>{linux}</wa:LinuxProvisioningConfigurationSet></wa:ProvisioningSection>"
            "<wa:PlatformSettingsSection><wa:PlatformSettings/></wa:PlatformSettingsSection></Environment>")


#: The wire server's documents.
WIRE = {
    GOAL_STATE: "<GoalState><Incarnation>1</Incarnation><Container><ContainerId>c</ContainerId><RoleInstanceList><RoleInstance>"
                "<InstanceId>i</InstanceId></RoleInstance></RoleInstanceList></Container></GoalState>",
    HEALTH: {"method": "POST", "status": 200},
}
DATA = "I2Nsb3VkLWNvbmZpZwo="


def azure(t, docs, faults=(), machine=(), within=4, deadline=30):
    """Asks, with the wire server at the lab's own address; gives the answer and the requests."""
    with Lab() as lab:
        stand(lab)
        options = {"121": route121((f"{METADATA}/32", "10.0.0.2"), ("0.0.0.0/0", "10.0.0.1")), "245": "0a000002"}
        lab.serve(dhcp={"s0": neutron(options=options)}, http={"docs": dict(WIRE, **docs), "faults": list(faults)})
        answer = t.ask(lab, "Azure", deadline, machine=dict(AZURE, **dict(machine)), within=within)
        return answer, lab.said("http")


def reports(requests):
    return [r for r in requests if r["http"] == "POST" and r["path"] == HEALTH]


def azure_names_keys_and_network(t):
    answer, requests = azure(t, {INSTANCE: metadata(userData=DATA)})
    instance = good(answer, {"metadata", "user_data", "network"})["instance"]
    assert (instance["instance_id"], instance["local_hostname"], instance["region"]) == (UUID, "vm1", "westus2"), instance
    assert instance["public_keys"] == [KEY] and instance["availability_zone"] == "2", instance
    device = instance["network"]["data"]["ethernets"]["eth0"]
    assert device["addresses"] == ["10.0.0.6/24"] and device["match"]["macaddress"] == Lab.mac(0), device
    manual.compare("Azure", len(requests))
    assert requests[0]["headers"]["metadata"] == "true", requests
    assert DATA not in json.dumps(instance["metadata"]), "user-data is not metadata"
    return f"{answer['requests']} requests"


def azure_that_is_not_ready_yet(t):
    faults = [{"fault": "status", "status": status, "path": "metadata", "times": 1} for status in (404, 410, 429)]
    answer, requests = azure(t, {INSTANCE: metadata()}, faults, within=9)
    good(answer, {"metadata", "network"})
    assert len(requests) == 4, requests


def azure_in_trouble(t):
    """A connection is lost, and what answers is no service of Azure's."""
    answer, requests = azure(t, {INSTANCE: metadata()}, [{"fault": "reset", "path": "metadata", "times": 2}], within=9)
    good(answer, {"metadata", "network"})
    assert len(requests) == 3, requests
    answer, _ = azure(t, {INSTANCE: metadata()}, [{"fault": "garbage", "path": "metadata"}], within=20, deadline=12)
    assert not answer["ok"], answer


def azure_of_an_old_installation(t):
    docs = {INSTANCE: {"status": 400}, OLD_INSTANCE: metadata()}
    good(azure(t, docs)[0], {"metadata", "network"})


def azure_that_refuses(t):
    """What is final is reported as a failure; the answer names the reason."""
    for docs, reason in (({INSTANCE: {"status": 403}}, "http error 403 querying IMDS"),
                         ({INSTANCE: "<html>"}, "error parsing IMDS metadata")):
        answer, requests = azure(t, docs, within=9)
        bad(answer, reason)
        assert len(reports(requests)) == 1, requests


def azure_media_beside_the_service(t):
    document = media("<wa:HostName>h</wa:HostName><wa:UserName>u</wa:UserName><wa:UserPassword>S3cret</wa:UserPassword>"
                     f"<wa:CustomData>{DATA}</wa:CustomData>")
    answer, _ = azure(t, {INSTANCE: metadata()}, machine={SEED: document})
    instance = good(answer, {"metadata", "user_data", "network"})["instance"]
    user = instance["config"]["system_info"]["default_user"]
    assert user["name"] == "adm" and user["hashed_passwd"].startswith("$6$"), user
    assert "S3cret" not in json.dumps(answer), "the password is nowhere in clear"


def azure_media_without_the_service(t):
    """A service that says nothing: the media is used in time, and the failure is for the running system to report."""
    document = media("<wa:HostName>h</wa:HostName>")
    answer, requests = azure(t, {}, [{"fault": "silent", "path": "metadata"}], {SEED: document}, within=12, deadline=20)
    instance = answer["instance"]
    assert answer["ok"] and instance["local_hostname"] == "h", answer["error"]
    assert "unexpected error querying IMDS" in instance["metadata"]["provisioning_failure"], instance["metadata"]
    assert not reports(requests), requests


def azure_damaged_media(t):
    for document, reason in (("<Environment", "error parsing ovf-env.xml"), (media(""), "missing configuration for 'HostName'")):
        answer, requests = azure(t, {INSTANCE: metadata()}, machine={SEED: document}, within=9)
        bad(answer, reason)
        assert len(reports(requests)) == 1 and not [r for r in requests if r["path"] == INSTANCE], requests


def azure_machine_of_a_pool(t):
    """It reports to the pool, and takes what its owner gives."""
    docs = {INSTANCE: metadata(pool="Running"), OWNERS: media("<wa:HostName>owner</wa:HostName>")}
    faults = [{"fault": "status", "status": 404, "path": "reprovisiondata", "times": 2}]
    answer, requests = azure(t, docs, faults, within=9)
    assert answer["ok"], answer["error"]
    paths = [r["path"] for r in requests]
    assert paths == [INSTANCE, GOAL_STATE, HEALTH, OWNERS, OWNERS, OWNERS, INSTANCE], paths


ALL = all_of(globals())
