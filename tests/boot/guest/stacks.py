"""Runs in the machine of tests/boot/networks: starts each stack with the files that prepivot made for it, and writes what the kernel
and the stack have then to the second serial port, a line of JSON for each stack. Then the machine is switched off."""

import json
import os
import shutil
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
    run("systemctl reset-failed; udevadm control --reload")


def main():
    with open("/dev/ttyS1", "w") as port:
        for stack in sorted(os.listdir(FILES)):
            start, stop = STACKS[stack]
            clear()
            run(f"cp -a {FILES}/{stack}/. /")
            said = [run(command) for command in start]
            found = settled()
            print(json.dumps({"stack": stack, "said": said, **found}), file=port, flush=True)
            log = run("journalctl -b --no-pager -o cat -u systemd-networkd -u NetworkManager | tail -150; networkctl list --no-legend 2>/dev/null")
            print(json.dumps({"log": stack, "text": log}), file=port, flush=True)
            for command in stop:
                run(command)
        print("end", file=port, flush=True)


try:
    main()
finally:
    subprocess.run("sync; systemctl poweroff --force --force", shell=True, check=False)
