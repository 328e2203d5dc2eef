"""Whole stages on real links: prepivot as it runs in the initramfs and in the real root, what it asks, how long it takes, what
it writes and what it leaves."""

import json
import os
import threading
import time

from cases import METADATA, NOVA, UUID, VERSION, Lab, all_of, difference, neutron, stand
from lab import run
from machine import Machine

NETPLAN = "etc/netplan/50-cloud-init.yaml"


def network_data(address):
    """network_data.json with one fixed address on the first link."""
    link = {"id": "a", "type": "phy", "ethernet_mac_address": Lab.mac(0), "mtu": 1500}
    network = {"id": "n", "type": "ipv4", "link": "a", "ip_address": address, "netmask": "255.255.255.0", "network_id": "x"}
    return {"links": [link], "networks": [network], "services": []}


def drive(address="10.0.0.77", **more):
    """What is on a config drive."""
    metadata = {"uuid": UUID, "hostname": "node-1.example.org"}
    return dict({"meta_data.json": metadata, "network_data.json": network_data(address), "user_data": "#cloud-config\n{}\n"}, **more)


def settled(code, said, *_):
    assert code == 0, said
    return said


def settled_in(run):
    """The seconds of a run that went well."""
    settled(*run)
    return run[2]


# The initramfs

def a_first_boot_by_the_service(t):
    """Links are raised, the service is asked, the root is provisioned, and the network is as it was."""
    with Lab(links=2) as lab:
        stand(lab, 1)
        lab.serve(dhcp={"s0": neutron(0, silent=True), "s1": neutron(1)}, http={"docs": NOVA})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp ip=c1:dhcp")
        before = lab.state()
        code, said, seconds = box.apply()
        assert code == 0 and seconds < 5, (code, seconds, said)
        assert lab.state() == before, difference(before, lab.state())
        assert box.read("var/lib/cloud/data/instance-id") == UUID + "\n", box.read("var/lib/cloud/data/instance-id")
        assert not box.console(), box.console()
        assert box.status()["init-local"]["recoverable_errors"] == {}, box.status()
        assert len(lab.said("http")) == 5, lab.said("http")
        assert box.status()["datasource"].startswith("DataSourceOpenStackLocal "), box.status()
        assert not box.read("run/prepivot/network.json", box.base), "the record of changes is gone with them"
        lease = json.loads(box.read("run/prepivot/lease-c1.json", box.base))
        assert lease["address"] == "10.0.1.5", lease
        # The same machine again is known by its UUID: nobody is asked.
        box.reboot()
        code, said, seconds = box.apply()
        assert code == 0 and seconds < 3 and len(lab.said("http")) == 5, (code, seconds, said)


def the_network_is_kept_for_a_network_root(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        settled(*Machine(lab, t.prepivot, cmdline="ip=c0:dhcp prepivot.keepnet").apply())
        state = lab.state()
        assert ("c0", "10.0.0.5", 24) in state["addresses"], state["addresses"]
        assert any(link["ifname"] == "c0" and link["up"] and link["mtu"] == 1442 for link in state["links"]), state["links"]


def the_deadline_is_the_kernel_command_lines(t):
    """A service that is certain and silent, slow, broken: the boot goes on in time, and says why."""
    faults = [({"fault": "silent"}, "no complete answer"), ({"fault": "status", "status": 503}, "503"), ({"fault": "half"}, "c0"),
              ({"fault": "reset"}, "c0"), ({"fault": "drip"}, "c0")]
    for fault, word in faults:
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": [fault]})
            box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp prepivot.timeout=4", config={"datasource_list": ["OpenStack"]})
            before = lab.state()
            code, said, seconds = box.apply()
            assert code == 0 and 3.5 <= seconds <= 6, (fault, code, seconds, said)
            assert lab.state() == before, difference(before, lab.state())
            why = json.dumps(box.status()["init-local"]["recoverable_errors"])
            assert "no datasource: " in why and word in why, why
            assert len(box.console()) == 1 and "no datasource: " in box.console()[0], box.console()


def what_cannot_be_answered_is_told_and_the_boot_goes_on(t):
    """No carrier, no DHCP, nonsense, a redirect elsewhere, nobody there: each with its reason on the console."""
    elsewhere = {"fault": "status", "status": 302, "headers": {"Location": "http://10.0.0.2/evil"}}
    cases = [("carrier", {}, "no carrier"), ("dhcp", {}, "no DHCP lease"), ("service", {"faults": [{"fault": "garbage"}]}, "not an HTTP answer"),
             ("service", {"faults": [elsewhere]}, "redirected to http://10.0.0.2"), ("service", None, "refused")]
    for what, http, word in cases:
        with Lab() as lab:
            stand(lab)
            if what == "carrier":
                lab.ip(lab.server, "link", "set", "s0", "down")
            if what == "dhcp":
                lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
            more = {"http": dict({"docs": NOVA}, **http)} if http is not None else {}
            lab.serve(dhcp={"s0": neutron(silent=what == "dhcp")}, **more)
            box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp prepivot.timeout=5", config={"datasource_list": ["OpenStack"]})
            before = lab.state()
            code, said, seconds = box.apply()
            assert code == 0 and seconds <= 7, (what, code, seconds, said)
            assert len(box.console()) == 1 and "no datasource: " in box.console()[0] and word in box.console()[0], (what, box.console())
            assert word in json.dumps(box.status()["init-local"]["recoverable_errors"]), box.status()
            assert lab.state() == before, difference(before, lab.state())


def too_much_user_data(t):
    """10 GB of user-data: the rest is provisioned, in time, and the reason is told."""
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": [{"fault": "endless", "path": "user_data"}]})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp")
        code, said, seconds = box.apply()
        assert code == 0 and seconds <= 6, (code, seconds, said)
        assert box.read("var/lib/cloud/data/instance-id") == UUID + "\n"
        assert "user_data: larger than 16777216 bytes" in box.console()[0], box.console()


def a_service_that_does_not_know_the_machine_yet(t):
    """404 for everything at first: asked again until there is an answer, by the initramfs and by the real root."""
    faults = [{"fault": "status", "status": 404, "times": 9}]
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": faults})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp")
        settled(*box.apply())
        assert box.read("var/lib/cloud/data/instance-id") == UUID + "\n", box.console()
        assert len(lab.said("http")) >= 14, len(lab.said("http"))
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": [{"fault": "status", "status": 404}]})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp prepivot.timeout=5")
        code, said, seconds = box.apply()
        assert code == 0 and 3 <= seconds < 8 and "has no OpenStack metadata" in said, (code, seconds, said)
        assert not box.read("var/lib/cloud/data/instance-id")
        up_again(lab)
        settled(*box.init("--local"))
        code, said, seconds = box.init()
        assert code == 0 and not box.read("var/lib/cloud/data/instance-id"), said
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": [{"fault": "status", "status": 404, "times": 20}]})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp prepivot.timeout=3")
        settled(*box.apply())
        assert not box.read("var/lib/cloud/data/instance-id")
        up_again(lab)
        settled(*box.init("--local"))
        code, said, seconds = box.init()
        assert box.read("var/lib/cloud/data/instance-id") == UUID + "\n", said
        assert box.status()["init"]["errors"] == [] and box.commands() == ["netplan apply"], (box.status(), box.commands())


def up_again(lab):
    """The real root has brought a link up that leads to the service."""
    run("ip", "netns", "exec", lab.client, "sysctl", "-q", "net.ipv6.conf.c0.disable_ipv6=1")
    lab.ip(lab.client, "link", "set", "c0", "up")
    lab.ip(lab.client, "addr", "add", "10.0.0.5/24", "dev", "c0")
    lab.ip(lab.client, "route", "add", f"{METADATA}/32", "via", "10.0.0.2")


def documents_that_fail_for_good(t):
    """A document with 500, nonsense, or no answer costs a few tries, and the boot goes on without it and says so."""
    for fault, path, word in [({"fault": "status", "status": 500}, "user_data", "500"),
                              ({"fault": "status", "status": 500}, "network_data.json", "500"),
                              ({"fault": "silent"}, "vendor_data2.json", "no complete answer")]:
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA, "faults": [dict(fault, path=path)]})
            box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp")
            code, said, seconds = box.apply()
            assert code == 0 and seconds < 30, (path, code, seconds)
            assert box.read("var/lib/cloud/data/instance-id") == UUID + "\n", box.console()
            warnings = json.dumps(box.status()["init-local"]["recoverable_errors"])
            assert path in warnings and word in warnings and "goes on without it" in warnings, warnings


def a_limit_of_the_rate(t):
    """Ten requests in ten seconds: what is turned away is asked for again, and nothing is missing."""
    disks = "".join(f"ephemeral{n}\n" for n in range(8))
    names = {"/latest/meta-data/block-device-mapping/": f"ami\nroot\n{disks}"}
    names.update({f"/latest/meta-data/block-device-mapping/{n}": f"/dev/vd{n[-1]}" for n in names["/latest/meta-data/block-device-mapping/"].split()})
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": dict(NOVA, **names), "rate": [10, 10]})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp")
        for disk in ("vda", "vdb"):
            box.write(f"sys/block/{disk}/size", "100\n", box.base)
        code, said, seconds = box.apply()
        assert code == 0 and seconds < 60, (code, seconds, said)
        # What took over 10 s is reported, as an answer.
        warnings = box.status()["init-local"]["recoverable_errors"].get("WARNING", [])
        assert all("429 Too Many Requests; answered at try" in w for w in warnings), warnings
        asked = {line["path"] for line in lab.said("http")}
        assert "/latest/meta-data/block-device-mapping/ephemeral4" in asked, asked
        cache = box.read(f"var/lib/cloud/instances/{UUID}/datasource.json")
        assert "/dev/vd4" in cache, cache


def files_that_the_service_injects(t):
    named = [{"path": "/etc/injected.conf", "content_path": "/content/0000"}]
    metadata = {"uuid": UUID, "hostname": "node-1", "files": named}
    with Lab() as lab:
        stand(lab)
        docs = dict(NOVA, **{f"{VERSION}/meta_data.json": json.dumps(metadata), "/openstack/content/0000": "injected\n"})
        lab.serve(dhcp={"s0": neutron()}, http={"docs": docs})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp")
        settled(*box.apply())
        assert box.read("etc/injected.conf") == "injected\n" and not box.console(), box.console()


def a_machine_without_a_sign_asks_nobody(t):
    """A virtual machine without a mark and no list: no packet leaves, and nearly no time passes."""
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": NOVA})
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp", dmi={"sys_vendor": "QEMU", "product_name": "Standard PC"})
        before = lab.state()
        # A busy machine is slower: the quickest of three counts.
        seconds = min(settled_in(box.apply()) for _ in range(3))
        assert seconds < 2.5, seconds
        assert not lab.said("dhcp") and not lab.said("connected") and lab.state() == before
        assert "there is no drive labelled config-2 or cidata" in box.console()[0], box.console()
        return f"{seconds:.1f} s"


def a_source_that_the_owner_names(t):
    """By ds= on the kernel command line, an unmarked machine asks at the address that is given, and only there."""
    openstack = {f"/base{path}": text for path, text in NOVA.items()}
    seed = {"/sn-42/meta-data": "instance-id: iid-7\n", "/sn-42/user-data": "#cloud-config\n{}\n"}
    for line, docs, iid in (("ds=openstack;metadata_urls=http://10.0.0.2:8775/base", openstack, UUID),
                            ("ds=nocloud;s=http://10.0.0.2:8775/__dmi.chassis-serial-number__/", seed, "iid-7")):
        with Lab() as lab:
            stand(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": docs, "port": 8775})
            dmi = {"sys_vendor": "QEMU", "chassis_serial": "sn-42"}
            box = Machine(lab, t.prepivot, cmdline=f"ip=c0:dhcp {line} prepivot.timeout=20", dmi=dmi)
            code, said, seconds = box.apply()
            assert code == 0 and seconds < 4, (line, code, seconds, said)
            assert box.read("var/lib/cloud/data/instance-id") == iid + "\n", said


def bare_metal_that_may_have_a_service_waits_less(t):
    """No mark, and the image's own list has OpenStack: 20 s at most."""
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron(silent=True)})
        lab.ip(lab.server, "addr", "del", f"{METADATA}/32", "dev", "lo")
        config = {"datasource_list": ["NoCloud", "OpenStack", "None"]}
        box = Machine(lab, t.prepivot, cmdline="ip=c0:dhcp", dmi={"sys_vendor": "Dell Inc."}, config=config, virt="none")
        code, said, seconds = box.apply()
        assert code == 0 and 19 <= seconds <= 23, (code, seconds, said)
        assert "c0: no DHCP lease" in said, said
        return f"{seconds:.1f} s"


# Names

def names_for(lab, order):
    """Version 2 that gives link n the name of link order[n]."""
    ethernets = {f"n{n}": {"match": {"macaddress": lab.mac(n)}, "set-name": name, "dhcp4": True} for n, name in enumerate(order)}
    return json.dumps({"version": 2, "ethernets": ethernets})


def named(lab, box, order):
    """A NoCloud seed in the image with that network configuration."""
    box.write("var/lib/cloud/seed/nocloud/meta-data", "instance-id: iid-1\n")
    box.write("var/lib/cloud/seed/nocloud/user-data", "#cloud-config\n{}\n")
    box.write("var/lib/cloud/seed/nocloud/network-config", names_for(lab, order))


def names_now(lab):
    by_mac = {link["address"]: link["ifname"] for link in lab.state()["links"]}
    return " ".join(by_mac[lab.mac(n)] for n in range(lab.links))


def links_get_their_names_before_the_pivot(t):
    """Swaps, a cycle of three and a new name, on the first boot and on later ones, where the initramfs named them anew."""
    with Lab(links=6) as lab:
        box = Machine(lab, t.prepivot)
        named(lab, box, ["c1", "c0", "c3", "c4", "c2", "lan5"])
        settled(*box.apply())
        assert names_now(lab) == "c1 c0 c3 c4 c2 lan5", names_now(lab)
        assert "set-name: c1" in box.read(NETPLAN), box.read(NETPLAN)
        for n in range(6):
            lab.ip(lab.client, "link", "set", names_now(lab).split()[n], "name", f"old{n}")
        for n in range(6):
            lab.ip(lab.client, "link", "set", f"old{n}", "name", f"c{n}")
        box.reboot()
        settled(*box.apply())
        assert names_now(lab) == "c1 c0 c3 c4 c2 lan5", names_now(lab)
        assert not any(link["up"] for link in lab.state()["links"] if link["ifname"] != "lo"), "they are down as before"


def a_link_of_the_root_keeps_its_name(t):
    with Lab(links=3) as lab:
        lab.ip(lab.client, "link", "set", "c0", "up")
        lab.ip(lab.client, "addr", "add", "10.0.0.9/24", "dev", "c0")
        box = Machine(lab, t.prepivot)
        named(lab, box, ["c1", "c0", "lan2"])
        settled(*box.apply())
        assert names_now(lab) == "c0 c1 lan2", names_now(lab)
        log = box.read("var/log/cloud-init.log")
        for line in ("c0 is not renamed to c1: it is up", "c1 is not renamed to c0: another link is called c0"):
            assert line in log, log


def a_name_that_the_kernel_refuses(t):
    """The names are as before, and the boot goes on with a warning."""
    with Lab(links=3) as lab:
        box = Machine(lab, t.prepivot)
        named(lab, box, ["c1", "c0", "default"])
        settled(*box.apply())
        assert names_now(lab) == "c0 c1 c2", names_now(lab)
        warnings = box.status()["init-local"]["recoverable_errors"]["WARNING"]
        assert [w for w in warnings if "failed to rename the link c2 to default" in w], warnings


def a_tree_by_hand_renames_nothing(t):
    with Lab(links=2) as lab:
        box = Machine(lab, t.prepivot)
        named(lab, box, ["c1", "c0"])
        seed = f"{box.root}/var/lib/cloud/seed/nocloud"
        for verb in ("plan", "apply"):
            code, said, _ = box.run(verb, "--root", box.root, "--seed", seed, real=False)
            assert code == 0, said
            assert names_now(lab) == "c0 c1", (verb, names_now(lab))
        assert "set-name: c1" in box.read(NETPLAN), box.read(NETPLAN)


# Refresh in the real root

def up(lab):
    """The real root's network is somebody else's: a link is up and leads to the service."""
    stand(lab)
    # IPv6 brings addresses and routes of its own a while after a link was set up.
    run("ip", "netns", "exec", lab.client, "sysctl", "-q", "net.ipv6.conf.c0.disable_ipv6=1")
    lab.ip(lab.client, "link", "set", "c0", "up")
    lab.ip(lab.client, "addr", "add", "10.0.0.5/24", "dev", "c0")
    lab.ip(lab.client, "route", "add", f"{METADATA}/32", "via", "10.0.0.2")


def first_boot_from_a_drive(lab, t, attached=False, **config):
    """A machine that was provisioned from a drive, and is at its second boot's network stage."""
    user_data = config.pop("user_data", "#cloud-config\n{}\n")
    box = Machine(lab, t.prepivot, config=config)
    box.drive(drive(user_data=user_data))
    settled(*box.init("--local"))
    settled(*box.init())
    assert "10.0.0.77" in box.read(NETPLAN), box.read(NETPLAN)
    assert not lab.said("connected") and not box.commands(), "a first boot from a drive asks nobody"
    box.reboot()
    if not attached:
        box.detach()
    return box


def changed(**more):
    """What the service says meanwhile."""
    new = {f"{VERSION}/network_data.json": json.dumps(network_data("10.0.0.78")), f"{VERSION}/user_data": "#cloud-config\n{a: b}\n"}
    return dict(NOVA, **new, **more)


def without_permission_nobody_is_asked(t):
    """Not on later boots of a machine that may have a service, nor with other events, nor where the list has a drive."""
    configs = [{}, {"datasource_list": ["ConfigDrive", "OpenStack"]}, {"updates": {"network": {"when": ["boot-new-instance", "hotplug"]}}},
               {"datasource_list": ["NoCloud", "ConfigDrive", "None"], "updates": {"network": {"when": ["boot-new-instance"]}}}]
    for config in configs:
        with Lab() as lab:
            up(lab)
            lab.serve(dhcp={"s0": neutron()}, http={"docs": changed()})
            box = first_boot_from_a_drive(lab, t, attached=bool(config), **config)
            settled(*box.init("--local"))
            settled(*box.init())
            assert not lab.said("connected") and not lab.said("dhcp"), (config, lab.said("connected"))
            assert "10.0.0.77" in box.read(NETPLAN) and not box.commands(), box.commands()


def modules_that_always_run_ask_nobody(t):
    """A module set to `always` does its work on each boot, with what is known of the instance."""
    with Lab() as lab:
        up(lab)
        lab.serve(http={"docs": changed()})
        user_data = "#cloud-config\nwrite_files: [{path: /etc/always, content: here}]\n"
        box = first_boot_from_a_drive(lab, t, user_data=user_data, cloud_init_modules=[["write_files", "always"]])
        for _ in range(2):
            os.remove(os.path.join(box.root, "etc/always"))
            settled(*box.init("--local"))
            settled(*box.init())
            assert box.read("etc/always") == "here"
            box.reboot()
        assert not lab.said("connected"), lab.said("connected")


def refreshed(lab, box):
    """The second boot's stages ask the service, once, and use what it says."""
    before = lab.state()
    settled(*box.init("--local"))
    assert not lab.said("connected"), "the local stage does not ask"
    code, said, seconds = box.init()
    assert code == 0 and seconds < 8, (code, seconds, said)
    assert 1 <= len(lab.said("http")) <= 5, lab.said("http")
    assert "10.0.0.78" in box.read(NETPLAN) and "10.0.0.77" not in box.read(NETPLAN), box.read(NETPLAN)
    assert box.commands() == ["netplan apply"], box.commands()
    assert box.read(f"var/lib/cloud/instances/{UUID}/user-data.txt") == "#cloud-config\n{a: b}\n"
    assert not lab.said("dhcp") and lab.state() == before, "the network is somebody else's"
    # Once in a boot: the later stages ask nobody.
    count = len(lab.said("http"))
    settled(*box.run("modules", "--mode", "config", real=True))
    settled(*box.run("modules", "--mode", "final", real=True))
    assert len(lab.said("http")) == count
    return f"{count} requests, {seconds:.1f} s"


def a_later_boot_that_may_ask(t):
    with Lab() as lab:
        up(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t, updates={"network": {"when": ["boot"]}})
        return refreshed(lab, box)


def a_later_boot_whose_user_data_lets_it_ask(t):
    with Lab() as lab:
        up(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t, user_data="#cloud-config\nupdates: {network: {when: [boot-legacy]}}\n")
        return refreshed(lab, box)


def a_later_boot_whose_network_comes_up_late(t):
    """The network stage begins before there is a link: the service is asked once one leads there."""
    with Lab() as lab:
        lab.serve(http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t, updates={"network": {"when": ["boot"]}})
        settled(*box.init("--local"))
        later = threading.Timer(2, up, [lab])
        later.start()
        try:
            code, said, seconds = box.init()
        finally:
            later.join()
        assert code == 0 and 2 <= seconds < 12, (code, seconds, said)
        assert "10.0.0.78" in box.read(NETPLAN) and box.commands() == ["netplan apply"], said


def a_drive_first_and_only_services_in_the_list(t):
    with Lab() as lab:
        up(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t)
        box.configure(datasource_list=["OpenStack"])
        return refreshed(lab, box)


def a_later_boot_with_the_drive_still_there(t):
    """The instance is the drive's: the drive is read again, and the service is not asked."""
    with Lab() as lab:
        up(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t, attached=True, updates={"network": {"when": ["boot"]}})
        box.drive(drive("10.0.0.79"))
        settled(*box.init("--local"))
        settled(*box.init())
        assert "10.0.0.79" in box.read(NETPLAN) and box.commands() == ["netplan apply"], box.read(NETPLAN)
        assert not lab.said("connected"), lab.said("connected")


def a_later_boot_with_nothing_to_ask(t):
    """The drive is gone and the machine has no mark of a service: that is no reason to warn."""
    with Lab() as lab:
        up(lab)
        lab.serve(http={"docs": changed()})
        box = first_boot_from_a_drive(lab, t, updates={"network": {"when": ["boot"]}})
        box.write("sys/class/dmi/id/product_name", "Standard PC\n", box.base)
        settled(*box.init("--local"))
        settled(*box.init())
        assert not lab.said("connected") and "10.0.0.77" in box.read(NETPLAN)
        assert box.status()["init"]["recoverable_errors"] == {}, box.status()


def a_refresh_that_nobody_answers(t):
    """The instance stays as it is, with a warning, in bounded time; a service that has another instance is not believed."""
    other = {f"{VERSION}/meta_data.json": json.dumps({"uuid": "11111111-2222-3333-4444-555555555555"})}
    for docs, word in (({}, "did not answer"), (changed(**other), "a new instance is for the next boot")):
        with Lab() as lab:
            up(lab)
            lab.serve(http={"docs": docs})
            box = first_boot_from_a_drive(lab, t, updates={"network": {"when": ["boot"]}})
            settled(*box.init("--local"))
            code, said, seconds = box.init()
            assert code == 0 and seconds < 35, (code, seconds, said)
            assert "10.0.0.77" in box.read(NETPLAN) and not box.commands()
            assert word in box.read("var/log/cloud-init.log"), box.read("var/log/cloud-init.log")


def two_changes_over_three_boots(t):
    """Where every boot may ask, what has changed is in effect in that boot: user-data, templates, and both halves of the modules
    that are set to run always."""
    user_data = """## template: jinja
#cloud-config
write_files: [{path: /etc/said, content: '{{ ds.meta_data.meta.word }}'}]
bootcmd: ['echo {{ ds.meta_data.meta.word }} >>/booted']
"""

    def docs(word, text):
        metadata = {"uuid": UUID, "hostname": "node-1", "meta": {"word": word}}
        return dict(NOVA, **{f"{VERSION}/meta_data.json": json.dumps(metadata), f"{VERSION}/user_data": text})

    config = {"datasource_list": ["OpenStack"], "updates": {"network": {"when": ["boot"]}},
              "cloud_init_modules": ["bootcmd", ["write_files", "always"]], "cloud_config_modules": [["runcmd", "always"]],
              "cloud_final_modules": [["scripts_user", "always"]]}
    with Lab() as lab:
        up(lab)
        boots = [("one", user_data), ("two", user_data), ("three", user_data + "runcmd: ['echo ran >>/booted']\n")]
        combined = "run/cloud-init/combined-cloud-config.json"
        box = None
        for n, (word, text) in enumerate(boots):
            lab.serve(http={"docs": docs(word, text), "port": 80})
            box = box or Machine(lab, t.prepivot, config=config)
            settled(*box.init("--local"))
            settled(*box.init())
            settled(*box.run("modules", "--mode", "config", real=True))
            settled(*box.run("modules", "--mode", "final", real=True))
            assert box.read("etc/said") == word, (n, box.read("etc/said"), box.status())
            assert word in box.read(combined, box.base), box.read(combined, box.base)
            lab.stop()
            box.reboot()
        assert box.read("booted").split() == ["one", "two", "three", "ran"], box.read("booted")


ALL = all_of(globals())
