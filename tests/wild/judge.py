"""The stacks' own parsers as judges of files below a folder: whether they refuse any, and what they say. One that is not installed says nothing.

For ifcfg files, whose readers no Debian has, the judge is a table of their keys, read again from the documentation (initscripts'
sysconfig.txt, nm-settings-ifcfg-rh(5); wicked's ifcfg(5)), with Python's own parser of addresses.
"""
import ipaddress
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

# What `netplan generate` itself runs, without the second that Python takes to start.
# From 1.2 on, `generate` is a generator for systemd alone.
NETPLAN = next((path for path in ["/usr/libexec/netplan/configure", "/usr/libexec/netplan/generate", "/lib/netplan/generate"] if Path(path).exists()), None)
NETWORKD = next((path for path in ["/usr/lib/systemd/systemd-networkd", "/lib/systemd/systemd-networkd"] if Path(path).exists()), None)


def run(command, **kwargs):
    """The command's exit code, and all that it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, **kwargs)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def is_here(stack):
    """Whether the stack's judge can run here."""
    if stack == "networkd":
        return NETWORKD is not None and os.geteuid() == 0 and run(["unshare", "-n", "-m", "true"])[0] == 0
    program = {"netplan": "netplan", "eni": "ifup", "network-manager": "nmcli", "sysconfig": "sh"}[stack]
    return shutil.which(program) is not None and (stack != "eni" or os.geteuid() == 0)


def lines(name, code, text, root):
    """Whether a parser refused, and what it said, a line each after its name, without the folder's own path."""
    said = [f"{name}: {line}" for line in text.replace(f"{root}/", "/").splitlines()]
    return bool(code), said + ([f"{name}: ended with {code}"] if code else [])


def netplan(root):
    code, text = run([*([NETPLAN] if NETPLAN else ["netplan", "generate"]), "--root-dir", str(root)])
    return lines("netplan generate", code, text, root)


def ifup(root):
    file = root / "etc/network/interfaces.d/50-cloud-init"
    file = file if file.exists() else root / "etc/network/interfaces"
    code, text = run(["ifup", "--no-act", "--force", "-a", "--interfaces", str(file)])
    return lines("ifup", code, text, root)


# What NetworkManager writes again in another form, or leaves out because it is the default.
REWRITTEN = {"uuid", "slave-type", "master", "controller", "port-type", "may-fail", "stp", "multi-connect", "autoconnect", "mac-address", "cloned-mac-address", "wake-on-lan", "mode",
             "key-mgmt", "preshared-key-flags", "allowed-ips", "route-metric", "dhcp-send-hostname", "ignore-auto-dns", "ignore-auto-routes", "ip6-privacy", "ssid", "bssid",
             "band", "dns-search", "hidden", "learning", "proxy"}


def read_back(before, after):
    """Lines of a profile that NetworkManager took, and that are not in what it wrote: it dropped them without a word."""
    def keys(text):
        section, found = "", {}
        for line in text.splitlines():
            if line.startswith("["):
                section = line
            elif "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                found.setdefault((section, re.sub(r"\d+(?=$|_options)", "", key)), set()).add(value)
        return found

    own, theirs = keys(before), keys(after)
    out = []
    if "[connection]\n" in before and "\nmaster=" in before:
        # A port has no addresses of its own.
        own = {key: values for key, values in own.items() if key[0] not in ("[ipv4]", "[ipv6]")}
        theirs = {key: values for key, values in theirs.items() if key[0] not in ("[ipv4]", "[ipv6]")}
    for (section, key), values in own.items():
        if section in ("[connection]", "[user]", "[match]") or key in REWRITTEN or key.startswith("routing-rule") or key.startswith("route"):
            continue
        if key == "gateway" and any(one.endswith(f",{next(iter(values))}") for one in theirs.get((section, "address"), ())):
            continue
        if (section, key) not in theirs and values != {"0"} and values != {"false"} and values != {""}:
            out.append(f"{section} {key}={' '.join(sorted(values))}")
    for section in ("[ipv4]", "[ipv6]"):
        for key in ("address", "route"):
            if len(own.get((section, key), ())) != len(theirs.get((section, key), ())):
                out.append(f"{section} {key}: {sorted(own.get((section, key), ()))} was read as {sorted(theirs.get((section, key), ()))}")
    return out


def nmcli(root):
    """It reads each profile and writes it again; what it cannot have it refuses, or leaves out."""
    out = []
    for profile in sorted((root / "etc/NetworkManager/system-connections").glob("*")):
        # Reading alone: a change that changes nothing.
        done = subprocess.run(["nmcli", "--offline", "connection", "modify", "connection.zone", ""], input=profile.read_bytes(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        text = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode or text:
            out.append(f"nmcli: {profile.name}: {text}")
        else:
            lost = read_back(profile.read_text(), done.stdout.decode("utf-8", "replace"))
            out += [f"nmcli: {profile.name}: {line} is not read" for line in lost]
    return bool(out), out


def networkd_said(folder, seconds):
    """All that networkd says in so many seconds of the files in the folder, in namespaces of its own."""
    script = (
        "mount --make-rprivate / && mount -t tmpfs none /etc/systemd/network && mount -t tmpfs none /run/systemd && mkdir -p /run/systemd/netif/links && "
        f"find {shlex.quote(str(folder))} -type f -exec cp -pt /etc/systemd/network {{}} + && chown systemd-network -R /etc/systemd/network && "
        f"SYSTEMD_LOG_TARGET=console exec timeout -s KILL {seconds} {NETWORKD}"
    )
    return run(["unshare", "-n", "-m", "sh", "-c", script])[1]


def networkd_all(roots):
    """What networkd says of the files below several folders, read in one run in namespaces of its own: a list for each folder."""
    said = {number: [] for number in range(len(roots))}
    with tempfile.TemporaryDirectory() as folder:
        for number, root in enumerate(roots):
            for path in (root / "etc/systemd/network").glob("*"):
                text = path.read_text()
                if path.suffix == ".netdev":
                    # Devices of several documents may have one name.
                    text = re.sub(r"^Name=.*$", f"Name=x{number}-{len(list(Path(folder).iterdir()))}", text, flags=re.MULTILINE)
                copy = Path(folder) / f"{number}-{path.name}"
                copy.write_text(text)
                copy.chmod(path.stat().st_mode)
        # A machine that is busy takes longer than the first time allowed.
        text = next((text for seconds in (3, 12, 48) if "Enumeration completed" in (text := networkd_said(folder, seconds))), None)
        if text is None:
            raise RuntimeError("networkd did not read the files in 48 seconds")
    for line in text.splitlines():
        found = re.match(r"/etc/systemd/network/(\d+)-(.*)", line)
        # The devices' names are other ones here; what networkd completes by itself is right; some keys are newer than it is.
        if found and not re.search(r"could not be found|not properly masked, assuming|Enabling GatewayOnLink|Disabling IPv6AcceptRA|Unknown key '(Hostname|SendHostname|RouteMetric|UseDomains)' in section .DHCPv6", line):
            said[int(found.group(1))].append(f"networkd: {found.group(2)}")
    return [said[number] for number in range(len(roots))]


def networkd(root):
    said = networkd_all([root])[0]
    return bool(said), said


def sections(path):
    """A networkd file as a list of sections: name, and each key with all its values."""
    found = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            found.append((line.strip("[]"), {}))
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[-1][1].setdefault(key, []).append(value)
    return found


def devices(root, prefix):
    """What networkd's files say of each device by its name: addresses, MTU, MAC address, VLAN's number, bond's mode and ports of bridges,
    as a set of texts. Whose files they are, prefix tells."""
    found = {}
    for path in sorted(root.rglob(f"{prefix}*")):
        name = path.name.removeprefix(prefix).rsplit(".", 1)[0]
        if name.isdigit():
            # networkd takes no such device; netplan does not know.
            continue
        said = found.setdefault(name, set())
        for section, keys in sections(path):
            last = {key: values[-1] for key, values in keys.items()}
            said |= {f"address {ipaddress.ip_interface(text)}" for text in keys.get("Address", []) if section in ("Network", "Address")}
            for key in ("Bond", "Bridge", "VRF"):
                said |= {f"{key} {text}" for text in keys.get(key, []) if section == "Network"}
            if section == "Link" and path.suffix == ".network":
                said |= {f"{key} {last[key].lower()}" for key in ("MTUBytes", "MACAddress") if key in last}
            if path.suffix == ".netdev":
                said |= {f"{section} {key} {last[key]}" for key in ("Id", "Mode", "Kind", "VNI") if key in last}
                said |= {f"{section} {key} {milliseconds(last[key])}" for key in ("MIIMonitorSec", "ForwardDelaySec") if key in last}
    return found


def milliseconds(text):
    """A time of a networkd file as milliseconds; another text as it is."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)?", text)
    return f"{float(found[1]) * (1 if found[2] == 'ms' else 1000):g} ms" if found else text


def differences(document, reported, netplan_root, networkd_root):
    """Where netplan, for its file, wrote another thing for networkd than prepivot did, of the devices that both have and of which
    nothing is reported: a line each. An address without a prefix length, which the document has, is completed in one and refused by the other."""
    def is_completed(text):
        return text.startswith("address ") and f'"{text.split()[1].split("/")[0]}"' in document

    def is_reported(name):
        return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reported)

    def is_of_reported(text):
        """Whether it is the device that this one is a port of, which is reported itself: netplan has no bond of such a name."""
        return text.startswith(("Bond ", "Bridge ", "VRF ")) and is_reported(text.split(" ", 1)[1])

    theirs, ours = devices(netplan_root / "run", "10-netplan-"), devices(networkd_root, "10-cloud-init-")
    compared = [name for name in sorted(set(theirs) & set(ours)) if not is_reported(name)]
    odd = [(name, text) for name in compared for text in sorted(theirs[name] ^ ours[name]) if not is_completed(text) and not is_of_reported(text)]
    return [f"networkd: {name}: {text} is only in {'ours' if text in ours[name] else 'netplan'}" for name, text in odd]


def address(version, with_prefix):
    def check(text):
        made = (ipaddress.ip_interface if with_prefix else ipaddress.ip_address)(text)
        return (not version or made.version == version) and (not with_prefix or "/" in text)

    return check


def number(least, most):
    return lambda text: least <= int(text) <= most


def word(*words):
    return lambda text: text in words


YES_NO = word("yes", "no")
MAC = re.compile(r"^([0-9A-Fa-f]{2}:){5}([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){14})?[0-9A-Fa-f]{2}$").match
DEVICE = re.compile(r"^[^\s/:]{1,15}$").match
IFCFG = [
    (r"IPADDR6(_\d+)?|IPV6ADDR", address(6, True)), (r"IPADDR\d*|NETMASK\d*|GATEWAY\d*|ADDRESS\d+", address(4, False)),
    (r"IPV6ADDR_SECONDARIES", lambda text: all(address(6, True)(one) for one in text.split())), (r"IPV6_DEFAULTGW", address(6, False)), (r"DNS\d", address(0, False)),
    (r"MTU|IPV6_MTU", number(0, 2**32 - 1)), (r"METRIC\d*|IPV[46]_ROUTE_METRIC|DHCLIENT_ROUTE_PRIORITY", number(0, 2**32 - 1)), (r"VLAN_ID", number(0, 4095)),
    (r"MACADDR|LLADDR", MAC), (r"HWADDR", lambda text: MAC(text.replace("-", ":"))), (r"DEVICE|PHYSDEV|ETHERDEVICE|MASTER|BONDING_SLAVE_?\d+", DEVICE),
    (r"ONBOOT|USERCTL|BONDING_MASTER|STP|SLAVE|VLAN|CONNECTED_MODE|IPV6INIT|DHCPV6C|IPV6_FAILURE_FATAL|IPV6_FORCE_ACCEPT_RA|IPV6_AUTOCONF|DEFROUTE|"
     r"DHCLIENT_SET_DEFAULT_ROUTE|DHCP_SEND_HOSTNAME|PEERDNS|PEERROUTES|IPV6_PEERDNS|IPV6_PEERROUTES|NETWORKING|NETWORKING_IPV6", YES_NO),
    (r"BRIDGE", lambda text: text == "yes" or DEVICE(text)), (r"TYPE", word("Bond", "Bridge", "Ethernet", "InfiniBand")), (r"BRIDGE_STP", word("on", "off")),
    (r"AGEING|BRIDGE_AGEINGTIME", number(0, 10**6)), (r"DELAY|BRIDGE_FORWARDDELAY", number(0, 30)), (r"PRIO|BRIDGE_PRIORITY", number(0, 65535)),
    (r"BRIDGE_HELLOTIME|BRIDGE_MAXAGE", number(0, 40)), (r"BRIDGE_PORTS", lambda text: all(map(DEVICE, text.split()))), (r"STARTMODE", word("auto", "manual", "hotplug", "nfsroot")),
    (r"BOOTPROTO", word("none", "static", "dhcp", "dhcp4", "dhcp6")), (r"DHCLIENT6_MODE", word("managed", "info")), (r"IPOIB_MODE", word("datagram", "connected")),
    (r"IPV6_PRIVACY", word("rfc3041", "no")), (r"BONDING_OPTS|BONDING_MODULE_OPTS|BRIDGING_OPTS", lambda text: all("=" in one for one in text.split())),
    (r"BRIDGE_PATHCOSTS|BRIDGE_PORTPRIORITIES|ETHTOOL_OPTS|ETHTOOL_OPTIONS|DHCPV6C_OPTIONS|DHCP_HOSTNAME|DHCPV6_HOSTNAME|DHCLIENT_HOSTNAME_OPTION|DOMAIN|OPTIONS\d+", bool),
]


def ifcfg(root):
    out = []
    for path in sorted((root / "etc/sysconfig").rglob("*")):
        if not path.is_file() or not path.name.startswith(("ifcfg-", "route-", "network")):
            continue
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                continue
            key, _, value = line.partition("=")
            check = next((check for pattern, check in IFCFG if re.fullmatch(pattern, key)), None)
            try:
                text = " ".join(shlex.split(value))
                is_taken = check is not None and bool(check(text))
            except ValueError:
                is_taken = False
            if not is_taken:
                out.append(f"ifcfg: {path.name}: {line}")
    return bool(out), out


JUDGES = {"netplan": netplan, "eni": ifup, "network-manager": nmcli, "networkd": networkd, "sysconfig": ifcfg}


def judged(stack, root):
    """Whether the stack's parser refuses any of the files below `root`, and what it says, as lines."""
    return JUDGES[stack](root) if is_here(stack) else (False, [])
