"""Expectations: what a path into the observed values must be.

    "answer.place" = "http://169.254.169.254"           the value is equal
    "http.*.path" = ["/openstack", …]                   `*` maps over a list; a number indexes it
    "http[path~user_data]" = {count = 2}                only the elements whose key holds the text (~), starts with it (^),
                                                        ends with it ($), is equal (=) or is not (!=)
    "root/etc/hostname" = "node-1\\n"                    a file of the machine's root; "box/…" one of its /run, /proc or /sys
    "box/run/prepivot/lease-c0.json#address" = "…"      a value in a file of JSON

A table holds conditions, all of which must be met (OPERATORS). A value that is absent meets none but `absent`.
"""

import json
import re

import manual


def text(value):
    """Strings as they are, everything else as JSON: what `holds` and `lacks` look into."""
    return value if isinstance(value, str) else json.dumps(value)


def several(value):
    return value if isinstance(value, list) else [value]


def holds(value, wanted):
    """An element of a list, or a part of a text."""
    return all(one in value if isinstance(value, list) else one in text(value) for one in several(wanted))


def lacks(value, unwanted):
    return not any(one in value if isinstance(value, list) else one in text(value) for one in several(unwanted))


def each(value, wanted):
    return isinstance(value, list) and value != [] and all(meets(one, wanted) for one in value)


OPERATORS = {
    "is": lambda value, wanted: value == wanted,
    "holds": holds,
    "lacks": lacks,
    "starts": lambda value, wanted: value.startswith(wanted),
    "ends": lambda value, wanted: value.endswith(wanted),
    "least": lambda value, wanted: value >= wanted,
    "most": lambda value, wanted: value <= wanted,
    "below": lambda value, wanted: value < wanted,
    "count": lambda value, wanted: meets(len(value), wanted),
    "set": lambda value, wanted: {text(one) for one in value} == {text(one) for one in wanted},
    "each": each,
    "all": lambda value, wanted: all(meets(one, wanted) for one in value),
    "any": lambda value, wanted: any(meets(one, wanted) for one in value),
    "keys": lambda value, wanted: sorted(value) == wanted,
    "order": lambda value, wanted: [one for one in value if one in wanted] == wanted,
    "distinct": lambda value, wanted: len({text(one) for one in value}) == wanted,
    "includes": lambda value, wanted: wanted.items() <= value.items(),
    "given": lambda value, wanted: [one for one in value if one is not None] == wanted,
    "unique": lambda value, wanted: (len({text(one) for one in value}) == len(value)) == wanted,
    "manual": lambda value, wanted: manual.compare(wanted, len(value) if isinstance(value, list) else value) is None,
}


def meets(value, wanted):
    if not isinstance(wanted, dict):
        return value == wanted
    unknown = set(wanted) - set(OPERATORS) - {"absent"}
    if unknown or not wanted:
        raise ValueError(f"unknown conditions: {sorted(unknown)}")
    if "absent" in wanted:
        return (value is None) == wanted["absent"]
    return value is not None and all(OPERATORS[name](value, operand) for name, operand in wanted.items())


def select(value, path):
    """The value at `path`; None where there is none."""
    for match in re.finditer(r"([^.\[\]]*)((?:\[[^\]]*\])*)(?:\.|$)", path):
        name, filters = match.groups()
        if name == "*":
            rest = path[match.end():]
            chosen = [one for one in value or [] if kept(one, filters)]
            return [select(one, rest) for one in chosen] if rest else chosen
        if name:
            value = step(value, name)
        if filters:
            value = [one for one in value or [] if kept(one, filters)]
    return value


def step(value, name):
    if isinstance(value, list):
        return value[int(name)] if -len(value) <= int(name) < len(value) else None
    return value.get(name) if isinstance(value, dict) else None


def kept(element, filters):
    for key, how, wanted in re.findall(r"\[(\w+)(!=|[~^$=])([^\]]*)\]", filters):
        found = str(element[key])
        if not {"=": found == wanted, "!=": found != wanted, "~": wanted in found,
                "^": found.startswith(wanted), "$": found.endswith(wanted)}[how]:
            return False
    return True


def failures(observed, expected):
    """What is not as expected: a line for each path. `observed` gives the value of a path's first name, or of a file."""
    wrong = []
    for path, wanted in expected.items():
        if path.startswith(("root/", "box/", "record/")):
            name, inside, rest = path.partition("#")
            value = observed.file(name)
            if inside and value is not None:
                value = select(json.loads(value), rest)
        else:
            name = re.match(r"\w+", path)[0]
            value = select({name: observed.value(name)}, path)
        if not meets(value, wanted):
            wrong.append(f"{path}: expected {json.dumps(wanted)}, found {text(value)[:2000]}")
    return wrong
