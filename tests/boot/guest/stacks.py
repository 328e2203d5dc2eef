"""Runs in the machine of tests/boot/networks: closes a metadata service to users, starts each stack with the files that prepivot made for
it, has it read them again, and writes what the kernel and the stack have then to the second serial port, a line of JSON for each stack.
Then the machine is switched off."""

import json
import os
import shutil
import socket
import subprocess
import time

FILES = "/stacks"
# How a stack is started and stopped.
STACKS = {
    "networkd": (["systemctl start systemd-networkd"], ["systemctl stop systemd-networkd.socket systemd-networkd"]),
    "netplan": (["netplan generate", "udevadm settle", "systemctl daemon-reload", "systemctl start systemd-networkd"],
                ["systemctl stop systemd-networkd.socket systemd-networkd"]),
    "network-manager": (["systemctl start NetworkManager"], ["systemctl stop NetworkManager"]),
    "eni": (["ifup -a"], ["ifdown -a --force"]),
}
# What an administrator has a stack do with files that have changed.
AGAIN = {
    "networkd": ["networkctl reload", "networkctl reconfigure eth0", "systemctl restart systemd-networkd"],
    "netplan": ["netplan apply"],
    "network-manager": ["nmcli connection reload", "nmcli general reload", "nmcli device reapply eth0", "systemctl restart NetworkManager"],
    # The first one only tells systemd that the links are up.
    "eni": ["systemctl start networking", "systemctl restart networking"],
}
PROGRAM = "/boot-test/prepivot"
SERVICE = "169.254.169.254"
CLOSED = "/run/prepivot/closed.json"
NOBODY = 65534
# For how long nothing changes in a network that is there, and how long it may take, in seconds.
QUIET, LONGEST = 10, 120


def run(command):
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.stdout.decode("utf-8", "replace")


def parsed(command):
    text = run(command)
    try:
        return json.loads(text or "[]")
    except ValueError:
        return text


def state():
    return {
        "links": parsed("ip -d -j address"), "routes": parsed("ip -4 -j route show table all"),
        "routes6": parsed("ip -6 -j route show table all"), "rules": parsed("ip -j rule"), "wg": run("wg show all dump"),
        "dns": run("resolvectl dns 2>/dev/null; cat /etc/resolv.conf"), "domains": run("resolvectl domain 2>/dev/null"),
        "primary": run("cat /sys/class/net/bond0/bonding/primary /sys/class/net/bond0/bonding/miimon 2>/dev/null"),
    }


def steady(state):
    """The part of it that does not count time."""
    links = [(link.get("ifname"), link.get("master"), link.get("mtu"), link.get("flags"),
              sorted(address.get("local", "") for address in link.get("addr_info", []))) for link in state["links"]]
    return json.dumps([links, state["routes"], len(state["routes6"]), state["wg"].split("\t")[:5]], sort_keys=True)


def settled():
    """The state once it does not change any more."""
    begin = changed = time.monotonic()
    last = None
    while time.monotonic() - begin < LONGEST:
        now = state()
        if steady(now) != last:
            last, changed = steady(now), time.monotonic()
        elif time.monotonic() - changed > QUIET:
            break
        time.sleep(0.5)
    return now


def clear():
    """Leaves the network cards alone, without addresses."""
    for link in parsed("ip -j link"):
        name = link["ifname"]
        if name != "lo" and not name.startswith("eth"):
            run(f"ip link del {name}")
    for number in range(4):
        run(f"ip link set eth{number} nomaster; ip address flush dev eth{number}; ip link set eth{number} down mtu 1500")
    for table in ("main", "1000"):
        run(f"ip route flush table {table}")
    run("modprobe -r bonding")
    for folder in ("/etc/systemd/network", "/run/systemd/network", "/etc/netplan", "/etc/NetworkManager/system-connections", "/etc/network"):
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and path != "/etc/network/interfaces":
                os.unlink(path)
            elif name == "interfaces.d":
                shutil.rmtree(path)
    # By these netplan keeps NetworkManager from the links.
    run("rm -f /run/udev/rules.d/*netplan* /run/NetworkManager/conf.d/*netplan*")
    run("systemctl reset-failed; udevadm control --reload; udevadm trigger --action=add --subsystem-match=net; udevadm settle")


def close():
    """Closes the service as a stage of prepivot does."""
    os.makedirs(os.path.dirname(CLOSED), mode=0o700, exist_ok=True)
    with open(CLOSED, "w") as record:
        json.dump({"addresses": [{"address": SERVICE, "tcp": [80]}], "users": []}, record)
    return run(f"{PROGRAM} trust close")


def answer():
    """What a connection to the service ends with."""
    try:
        with socket.create_connection((SERVICE, 80), timeout=2):
            return "connected"
    except OSError as error:
        return type(error).__name__


def closed():
    """What is left of what closes the service, and what a user's connection to it ends with, and root's."""
    run(f"ip route add {SERVICE}/32 dev eth0")
    root = answer()
    os.seteuid(NOBODY)
    user = answer()
    os.seteuid(0)
    return {"layers": run(f"{PROGRAM} trust show").strip().splitlines()[-1:], "user": user, "root": root}


def main():
    with open("/dev/ttyS1", "w") as port:
        print(json.dumps({"closes": close()}), file=port, flush=True)
        for stack in sorted(os.listdir(FILES)):
            start, stop = STACKS[stack]
            clear()
            run(f"cp -a {FILES}/{stack}/. /")
            said = [run(command) for command in start]
            found = settled()
            said += [run(command) for command in AGAIN[stack]]
            settled()
            print(json.dumps({"stack": stack, "said": said, "closed": closed(), **found}), file=port, flush=True)
            log = run("journalctl -b --no-pager -o cat -u systemd-networkd -u NetworkManager | tail -150; networkctl list --no-legend 2>/dev/null")
            print(json.dumps({"log": stack, "text": log}), file=port, flush=True)
            for command in stop:
                run(command)
        print("end", file=port, flush=True)


try:
    main()
finally:
    subprocess.run("sync; systemctl poweroff --force --force", shell=True, check=False)
