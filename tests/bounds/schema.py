"""The schemas of documents, as values are made by them."""

import pathlib
import re

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"

# Schemas, in the notation that src/schema/mod.rs describes.
TOKEN = re.compile(r'"[^"]*"|(?:int|num)\([^)]*\)|\([^()]*\)|\.\.\.|\d*\.\.\d*|[\[\]{}|:,+]|[^\s\[\]{}|:,+()"]+')


class Schema:
    """What a value may be: `kind` is list, map or a scalar's notation; `inner` a list's item or a mapping's keys."""

    def __init__(self, kind, inner=None):
        self.kind, self.inner = kind, inner

    @staticmethod
    def parse(text):
        tokens, parts = TOKEN.findall(text) + ["}"], {}

        def olds():
            while tokens[0][0] in "~^":
                del tokens[:2]

        def alternative():
            token = tokens.pop(0)
            if token == "[":
                found = Schema("list", node() if tokens[0] != "]" else [Schema("str")])
                tokens.pop(0)
            elif token == "{":
                found = Schema("map", fields())
            else:
                found = Schema(token, {"list": [Schema("str")], "map": {"*": [Schema("str")]}}.get(token))
            while re.fullmatch(r"\+|\d*\.\.\d*|unique", tokens[0]):
                tokens.pop(0)
            olds()
            return found

        def node():
            found = [alternative()]
            while tokens[0] == "|":
                tokens.pop(0)
                found.append(alternative())
            return found

        def fields():
            keys = {}
            while (token := tokens.pop(0)) != "}":
                names = [token]
                while tokens and tokens[0] == ",":
                    names.append(tokens.pop(1))
                    tokens.pop(0)
                if tokens and tokens[0] == ":":
                    tokens.pop(0)
                    keys |= dict.fromkeys(names, node())
                elif tokens and tokens[0] == "=":
                    tokens.pop(0)
                    parts[token] = node()
                elif tokens:
                    olds()
            return keys

        def resolve(node, depth=0):
            if depth > 8:
                return [Schema("str")]
            found = [part for alternative in node for part in parts.get(alternative.kind, [alternative])]
            for alternative in found:
                if alternative.kind == "list":
                    alternative.inner = resolve(alternative.inner, depth + 1)
                elif alternative.kind == "map":
                    alternative.inner = {key: resolve(node, depth + 1) for key, node in alternative.inner.items()}
            return found

        return {key: resolve(node) for key, node in fields().items()}

    def collections(self):
        """All lists and mappings of any keys in it, itself too, each with the way to it."""
        if self.kind == "list":
            yield [self]
        for key, node in [("", self.inner)] if self.kind == "list" else (self.inner or {}).items():
            if self.kind == "map" and is_open(key):
                yield [self]
            for alternative in node:
                yield from ([self, *way] for way in alternative.collections())

    def value(self, way, count, number=0):
        """A value that has `count` entries in the last collection of the way, and elsewhere one; of the mappings on the way no keys
        but what leads there and has to be there."""
        if self.kind in ("list", "map"):
            is_last = way and self is way[-1]
            following = way[1:] if way and self is way[0] else []
            chosen = lambda node: next((a for a in node if a in following), next((a for a in node if a.kind != "null"), node[0]))
            numbers = range(count) if is_last else [number]
            if self.kind == "list":
                return [chosen(self.inner).value(following, count, i) for i in numbers]
            value = {}
            for key, node in self.inner.items():
                alternative = chosen(node)
                if is_open(key):
                    value |= {f"k{i}": alternative.value(following, count, i) for i in numbers}
                elif not following or alternative in following or key.endswith("!"):
                    value[key.rstrip("!")] = named(key, number) or alternative.value(following, count, number)
            return value
        if self.kind.startswith("("):
            return self.kind[1:-1].split()[0]
        return {"bool": True, "null": None}.get(self.kind.split("(")[0], number if self.kind.startswith(("int", "num")) else f"x{number}")


def named(key, number):
    """What a key has to hold so that there is work."""
    return {"path!": f"/f/x{number}", "name": f"u{number}", "source": f"deb http://a/ b c{number}", "baseurl": "http://a/"}.get(key)


def with_text(node, text, depth=0):
    """All places of a node that take a text, each with a value that has this one there, and besides what has to be there."""
    for alternative in node if depth <= 8 else []:
        if alternative.kind == "list":
            yield from ((f"[]{place}", [value]) for place, value in with_text(alternative.inner, text, depth + 1))
        elif alternative.kind == "map":
            needed = {key.rstrip("!"): named(key, 0) or node[0].value([], 1) for key, node in alternative.inner.items() if key.endswith("!")}
            needed |= {key: named(key, 0) for key in ("name", "source", "baseurl") if key in alternative.inner}
            for key, inner in alternative.inner.items():
                name = "k0" if is_open(key) else key.rstrip("!")
                for place, value in with_text(inner, text, depth + 1):
                    yield f".{name}{place}", needed | {name: value}
        elif not alternative.kind.startswith(("(", "int", "num", "bool", "null")):
            yield "", text


def is_open(key):
    return key[0] in "*."


def top(text):
    """A schema's keys, each with what it may be."""
    return Schema.parse("\n".join(line for line in text.splitlines() if not line.startswith("#")))


def of_modules():
    """All keys of all modules' schemas, each with what it may be."""
    for path in sorted((SOURCES / "module").rglob("*.rs")):
        for block in re.findall(r"//! ```schema\n(.*?)//! ```", path.read_text(), re.DOTALL):
            yield from top(block.replace("//!", "")).items()


def of_networks():
    """What a network configuration may be, in version 1 and 2."""
    found = top((SOURCES / "schema/network.txt").read_text() + "\none: $v1\ntwo: $v2\n")
    return [found["one"], found["two"]]
