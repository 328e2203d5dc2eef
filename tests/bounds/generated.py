"""Machines' documents made by the schemas, with odd and large values: the same for the same seed."""

import json
import random

import schema

# Scalars that are odd for most keys: by their length, their characters, their type, or what they mean elsewhere.
ODD = [
    "", " ", "x" * 300, "x" * 70_000, "\u0000", "a\nb\n", "\u001b[2J", "\u202e\ufeff\u00e9", "../../../etc/passwd", "/etc/passwd", "-rf", "%s%n",
    "{{ v1 }}", "$(id)", "a:b:c", "a,b", "a b", "#", "'\"", "~", "null", "true", "0x10", "1e400", "1_000", "010", "2026-11-28", "1:30", "0" * 400,
    "http://h/", "ftp://u:p@h:99999/", "10.0.0.1/33", "::1/129", "fe80::1%eth0", "52:54:00:00:00:0g", "root", "default", "ALL=(ALL) ALL",
    0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**20), 0.1, 1e308, True, False, None,
]
# How many entries a collection has, and how often.
COUNTS = [0, 1, 1, 1, 2, 3, 3, 10, 100, 1_000, 8_000]
# The most values of a document.
VALUES = 40_000
STACKS = {
    "netplan": {"usr/sbin/netplan": ""},
    "networkd": {"usr/bin/systemctl": "", "usr/lib/systemd/systemd-networkd": ""},
    "network-manager": {"usr/bin/nmcli": "", "etc/runlevels/default/NetworkManager": ""},
    "eni": {"usr/sbin/ifquery": "", "usr/sbin/ifup": "", "usr/sbin/ifdown": "", "etc/network/interfaces": ""},
    "sysconfig": {
        "etc/os-release": "ID=fedora\n", "usr/sbin/ifup": "", "usr/sbin/ifdown": "",
        "etc/sysconfig/network-scripts/network-functions": "",
    },
    "wicked": {
        "etc/os-release": "ID=opensuse-leap\n", "usr/sbin/ifup": "", "usr/sbin/ifdown": "", "etc/sysconfig/network/config": "",
    },
}


class Maker:
    """Makes values of one document."""

    def __init__(self, chance):
        self.chance, self.left = chance, VALUES

    def of(self, node, depth=0):
        """A value for a key: seldom one of another kind."""
        self.left -= 1
        if self.left < 0 or depth > 12:
            return None
        if self.chance.random() < 0.04:
            return self.chance.choice([[], {}, [[]], {"x": {}}, self.chance.choice(ODD)])
        return self.kind(self.chance.choice(node), depth)

    def kind(self, schema, depth):
        chance, kind = self.chance, schema.kind
        if kind == "list":
            return [self.of(schema.inner, depth + 1) for _ in range(self.count(depth))]
        if kind == "map":
            return self.mapping(schema, depth)
        if kind.startswith("("):
            return chance.choice(kind[1:-1].split() or [""])
        if chance.random() < 0.4:
            return chance.choice(ODD)
        number = chance.randrange(1_000)
        if kind.startswith("bool"):
            return chance.random() < 0.5
        if kind.startswith(("int", "num")):
            return number
        if kind.startswith("str/"):
            return chance.choice([f"/f/x{number}", f"x{number}", f"10.0.{number % 256}.1/24", f"http://h/{number}"])
        return {"null": None, "list": [number], "map": {"a": number}}.get(kind, f"x{number}")

    def mapping(self, of, depth):
        value = {}
        for key, node in (of.inner or {}).items():
            if schema.is_open(key):
                value |= {f"k{n}": self.of(node, depth + 1) for n in range(self.count(depth))}
            elif self.chance.random() < (0.97 if key.endswith("!") else 0.5):
                value[key.rstrip("!")] = self.of(node, depth + 1)
        if self.chance.random() < 0.05:
            value[self.chance.choice(["x", "", "name ", "0"])] = self.chance.choice(ODD)
        return value

    def count(self, depth):
        count = self.chance.choice(COUNTS)
        return count if depth < 2 else min(count, 20)


def documents(seed, count):
    """`count` times a name and the files of a machine: its documents, and below / what its root has besides. Each key of the modules'
    schemas is in one of as many as there are keys; others of them are beside it."""
    keys, networks = sorted(dict(schema.of_modules()).items(), key=lambda item: item[0]), schema.of_networks()
    random.Random(seed).shuffle(keys)
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        first, node = keys[number % len(keys)]
        chosen = {first: node} | dict(chance.sample(keys, chance.randrange(6)))
        stack = list(STACKS)[number % len(STACKS)]
        files = {f"/{path}": content for path, content in STACKS[stack].items()}
        for name in ("user-data", "vendor-data") if chance.random() < 0.3 else ("user-data",):
            maker = Maker(chance)
            files[name] = text({key.rstrip("!"): maker.of(node) for key, node in chosen.items()}, "#cloud-config\n")
        files["network-config"] = text(Maker(chance).of(networks[number % 2]), "")
        yield f"{seed}/{number}: {first.rstrip('!')}, {stack}", files


def text(value, header):
    """YAML: JSON, whose surrogates are none of its escapes."""
    return header + json.dumps(value) + "\n"
