"""What a case serves, as a script for server.py."""

import json

from data import METADATA, WORDS, filled, known, read
from lab import route121


def served(given):
    """A case's `serve` as server.py takes it."""
    script = dict(known(given, "serve"))
    script["dhcp"] = {link: lease(known(each, "lease")) for link, each in given.get("dhcp", {}).items()}
    if "http" in given:
        http = dict(known(given["http"], "http"))
        docs = {}
        for name in http.pop("documents", []):
            docs |= documents(name)
        docs |= http.pop("docs", {})
        for old, new in http.pop("rename", {}).items():
            docs = {path.replace(old, new): document for path, document in docs.items()}
        docs |= http.pop("instead", {})
        for path in http.pop("without", []):
            del docs[path]
        if "everything" in http:
            docs = dict.fromkeys(docs, http.pop("everything"))
        http["docs"] = {path: served_document(document) for path, document in docs.items()}
        script["http"] = http
    return script


def documents(name):
    """The documents of a file of shared/documents, by path."""
    return filled(read("shared", "documents", f"{name}.toml"), WORDS)


def served_document(document):
    return document if isinstance(document, dict) and "json" not in document else document_text(document)


def document_text(document):
    """A text, or a table `json` with a value that is written as JSON."""
    return document if isinstance(document, str) else json.dumps(document["json"])


def neutron(link=0, **more):
    """A lease as neutron gives it: the metadata service behind a host route of option 121, another default router."""
    options = {"3": f"0a00{link:02x}fe", "121": route121((f"{METADATA}/32", f"10.0.{link}.2"), ("0.0.0.0/0", f"10.0.{link}.1")),
               "6": f"0a00{link:02x}02", "26": "05a2"}
    return dict({"address": f"10.0.{link}.5", "server": f"10.0.{link}.2", "options": options}, **more)


def lease(given):
    script = dict(given)
    options = dict(script.pop("options", {}))
    options |= {code: value.encode().hex() for code, value in script.pop("text", {}).items()}
    options |= {code: "".join(f"{int(octet):02x}" for address in several for octet in address.split("."))
                for code, several in script.pop("addresses", {}).items()}
    routes = script.pop("routes", None)
    if routes is not None:
        options["121"] = route121(*routes)
    if "neutron" in script:
        script = neutron(script.pop("neutron"), **script)
        options = script["options"] | options
    return script | {"options": options}
