"""The files of cases: their keys, the words in them, and how one is put over another."""

import os
import re
import tomllib

import expect
from lab import HERE, Lab

UUID = "7f3e0c4a-5f3b-4a53-9e7d-6a3e0c1f2b3d"
METADATA = "169.254.169.254"
#: The words of every case; a NULL is none.
WORDS = {"UUID": UUID, "METADATA": METADATA, "MAC": Lab.mac(0)}

STEPS = {"ask", "run", "rename", "reboot", "detach", "stop", "client", "server", "configure", "write", "drive", "remove", "serve",
         "quickest_of", "include", "meanwhile", "outcome", "expect"}
KEYS = {
    "": {"about", "suite", "words", "alone", "needs", "lab", "setup", "serve", "serve_nowhere", "ask", "machine", "outcomes",
         "outcome", "expect", "step", "variant", "wants"},
    "lab": {"links", "nowhere", "delay"},
    "setup": {"service", "server", "client", "nowhere"},
    "serve": {"dhcp", "ra", "dns", "http"},
    "ask": {"source", "deadline", "within", "cmdline", "config", "machine", "words", "environment", "bare"},
    "machine": {"cmdline", "dmi", "virt", "config", "files", "box", "drive"},
    "meanwhile": {"after", "up", "server", "client"},
    "http": {"documents", "docs", "rename", "instead", "without", "everything", "faults", "port", "ports", "token", "type", "rate", "shed", "down", "tls"},
    "lease": {"neutron", "routes", "text", "addresses", "address", "prefix", "server", "options", "silent", "drop", "nak", "rapid",
              "delay", "garbage", "wrong_xid", "wrong_mac", "long"},
}


def known(table, where):
    unknown = set(table) - KEYS[where]
    if unknown:
        raise ValueError(f"unknown keys of {where or 'a case'}: {' '.join(sorted(unknown))}")
    return table


def over(base, change):
    """`change` put over `base`, table by table. A table of conditions is a value."""
    both = dict(base)
    for key, value in change.items():
        nested = isinstance(value, dict) and isinstance(both.get(key), dict) and not set(value) & set(expect.OPERATORS)
        both[key] = over(both[key], value) if nested else value
    return both


def filled(value, words):
    """With the words in place, in keys too."""
    if isinstance(value, dict):
        return {filled(key, words): filled(inner, words) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, words) for inner in value]
    if not isinstance(value, str):
        return value
    if value == "@NULL@":
        return None
    return re.sub(r"@([A-Z0-9_]+)@", lambda match: str(words[match[1]]), value)


def read(*path):
    with open(os.path.join(HERE, *path), "rb") as file:
        return tomllib.load(file)
