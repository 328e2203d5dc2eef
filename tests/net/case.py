"""A case: a file cases/GROUP/NAME.toml that describes a lab, what is served in it, what is run, and what is expected.

    about     one line: what a user gets
    suite     a file of shared/ whose keys are the defaults here
    words     texts that replace @NAME@ everywhere, besides @UUID@, @MAC@ (of the first link), @METADATA@ and @NULL@ (JSON's null)
    alone     true: it measures time, and runs when nothing else does
    needs     a kind of link that the kernel must have; the case is skipped without it
    lab       {links, nowhere, delay}: lab.py, Lab
    setup     before anything runs: `service`, the links whose server has 10.0.LINK.2/24 and the metadata address ([0] without it);
              `server`, `client` and `nowhere`, commands in that namespace: of ip, or `sysctl …`
    serve     what server.py is given: {dhcp, ra, dns, http}; `serve_nowhere` is the same in the third namespace. A lease is the one
              of neutron on link `neutron`, with what else it has; `routes` are pairs for option 121, `text` options in ASCII, and
              `addresses` options of addresses. In http: `documents`, files of shared/documents; `docs`, further documents, a text or a
              table {json} or one of server.py's; `rename`, texts replaced in their paths; `instead`, documents put in place of
              theirs; `without`, paths left out; `everything`, a text in place of each
    ask       one request for an instance (ask.rs): {source, deadline, within, cmdline, config, machine, words, environment, bare}.
              It ends within `within` seconds (deadline + 1), and the network is as before; not looked at where `bare` is true
    machine   a machine that boots in stages (machine.py): {cmdline, dmi, virt, config, files, box, drive}
    outcomes  sets of expectations by name
    outcome   the set, or the list of sets, that each `ask` must meet
    expect    what must hold at the end: expect.py, over the values of observed.py
    step      what is done, in order; one `ask` without it. Each has its own `outcome` and `expect`, and one of
                  ask        changes to the case's `ask`
                  run        the words of a stage in the real root, `apply` in the initramfs, or `by-hand VERB`; it exits with 0.
                             `quickest_of` runs it so often, and looks at the quickest
                  rename     pairs of link names
                  reboot, detach, stop     true: /run is emptied, the drive is taken away, the server is stopped
                  client, server           commands, as in `setup`
                  configure, write, drive, remove, serve   changes to the machine, or to what is served
                  include    a file of shared/ that has steps
              `meanwhile` = {after, up, server, client} does the latter `after` seconds after the step began, or after c0 was up
    variant   the case runs once for each, with these keys put over its own; one whose `wants` names a word without a value is
              left out

A key that is not known is an error."""

import concurrent.futures
import contextlib
import json
import os
import time

import expect
from data import METADATA, STEPS, WORDS, filled, known, over, read
from lab import HERE, Lab, run
from machine import Machine
from observed import Observed
from served import document_text, served

class Skip(Exception):
    pass


def names():
    """All cases: the file by the name, which is the file's with spaces."""
    found = {}
    for folder, _, files in sorted(os.walk(os.path.join(HERE, "cases"))):
        for file in sorted(files):
            path, name = os.path.join(folder, file), file.removesuffix(".toml").replace("-", " ")
            if not file.endswith(".toml") or name in found:
                raise ValueError(f"{path}: expected a file NAME.toml with a name of its own")
            found[name] = path
    return found


def load(path):
    """A file's variants, complete; one where it has none."""
    return complete(read(path))


def complete(case):
    """The variants of a case, with what its suites say; one where it has none."""
    if not case.get("about"):
        raise ValueError("about is missing")
    layers = [case]
    while "suite" in layers[0]:
        layers.insert(0, read("shared", f"{layers[0].pop('suite')}.toml"))
    words = WORDS | {name: filled(text, WORDS) for layer in layers for name, text in layer.pop("words", {}).items()}
    case = {}
    for layer in layers:
        layer["variant"] = [v for v in layer.get("variant", []) if all(want in words for want in v.get("wants", []))]
        case = over(case, filled(known(layer, ""), words))
    variants = [v for layer in layers for v in layer["variant"]] or [{}]
    return [over(case, filled(known(variant, ""), words)) for variant in variants]


class Case:
    """One variant of a case, in its lab."""

    def __init__(self, case, programs, verbose=False):
        self.case, self.verbose = case, verbose
        #: The example that asks, and prepivot itself.
        self.asker, self.prepivot = programs

    @contextlib.contextmanager
    def lab(self):
        """The lab as the case has it, with its servers."""
        case = self.case
        with Lab(**known(case.get("lab", {}), "lab")) as lab:
            if "needs" in case:
                needs(lab, case["needs"])
            setup = known(case.get("setup", {}), "setup")
            for link in setup.get("service", [0]):
                add_service(lab, link)
            for where in ("server", "client", "nowhere"):
                commands(lab, where, setup.get(where, []))
            if "serve_nowhere" in case:
                lab.serve(lab.nowhere, **served(case["serve_nowhere"]))
            if "serve" in case:
                lab.serve(**served(case["serve"]))
            yield lab

    def run(self):
        with self.lab() as lab:
            seen = Observed(lab)
            if "machine" in self.case:
                seen.box = self.make_machine(lab)
            for number, step in enumerate(included(self.case.get("step", [{"ask": {}}])), 1):
                self.step(seen, step, f"step {number}: " if "step" in self.case else "")
            judge(seen, self.case.get("expect", {}), "")
            return self.note(seen)

    def note(self, seen):
        if seen.run:
            return f"{seen.run['seconds']:.1f} s"
        answer = seen.answer or {}
        return f"{answer['requests']} requests, {answer['seconds']:.3f} s" if "requests" in answer and "seconds" in answer else ""

    def make_machine(self, lab):
        given = known(self.case["machine"], "machine")
        box = Machine(lab, self.prepivot, **{key: given[key] for key in ("cmdline", "dmi", "config", "virt") if key in given})
        for path, document in given.get("files", {}).items():
            box.write(path, document_text(document))
        for path, document in given.get("box", {}).items():
            box.write(path, document_text(document), box.base)
        if "drive" in given:
            box.drive({name: document_text(document) for name, document in given["drive"].items()})
        return box

    def step(self, seen, step, prefix):
        lab, box = seen.lab, seen.box
        unknown = set(step) - STEPS
        if unknown:
            raise ValueError(f"{prefix}unknown keys: {' '.join(sorted(unknown))}")
        seen.begin()
        expected = {}
        later = meanwhile(lab, known(step["meanwhile"], "meanwhile")) if "meanwhile" in step else None
        try:
            if "ask" in step:
                expected = self.ask(seen, over(self.case.get("ask", {}), step["ask"]))
                for outcome in expect.several(step.get("outcome", self.case["outcome"])):
                    expected |= self.case["outcomes"][outcome]
            elif "run" in step:
                runs = [stage(box, step["run"]) for _ in range(step.get("quickest_of", 1))]
                seen.run = min(runs, key=lambda run: (-run["code"], run["seconds"]))
                expected = {"run.code": 0}
            elif "rename" in step:
                seen.answer = lab.ask(self.asker, "rename", *step["rename"], "verbose")
        finally:
            if later:
                later.result()
        self.change(seen, step)
        judge(seen, expected | step.get("expect", {}), prefix)

    def change(self, seen, step):
        lab, box = seen.lab, seen.box
        for where in ("server", "client"):
            commands(lab, where, step.get(where, []))
        if step.get("stop"):
            lab.stop()
        if step.get("reboot"):
            box.reboot()
        if step.get("detach"):
            box.detach()
        if "serve" in step:
            lab.serve(**served(step["serve"]))
        if "configure" in step:
            box.configure(**step["configure"])
        for path, document in step.get("write", {}).items():
            place, _, path = path.partition("/")
            box.write(path, document_text(document), {"root": box.root, "box": box.base}[place])
        if "drive" in step:
            box.drive({name: document_text(document) for name, document in step["drive"].items()})
        for path in step.get("remove", []):
            os.remove(os.path.join(box.root, path))

    def ask(self, seen, ask):
        """Asks; gives what every answer has to meet."""
        lab, deadline = seen.lab, known(ask, "ask")["deadline"]
        folder = lab.machine(ask.get("cmdline", ""), **ask.get("machine", {}))
        words = [f"config={json.dumps(ask['config'])}"] if "config" in ask else []
        words += [f"record={lab.folder.name}/net/changes.json" if word == "record" else word for word in ask.get("words", [])]
        seen.answer = lab.ask(self.asker, ask["source"], str(deadline), f"machine={folder}", *words, "verbose",
                              environment=ask.get("environment", {}))
        if self.verbose:
            print(seen.answer)
        if ask.get("bare"):
            return {}
        return {"answer.total": {"most": ask.get("within", deadline + 1)}, "changed": []}


def judge(seen, expected, prefix):
    wrong = expect.failures(seen, expected)
    if wrong:
        log = (seen.answer or {}).get("error") or (seen.run or {}).get("said", "")[-2000:]
        raise AssertionError("; ".join(prefix + line for line in wrong) + (f" ({log})" if log else ""))


def included(steps):
    for step in steps:
        if "include" in step:
            yield from included(filled(read("shared", f"{step['include']}.toml")["step"], WORDS))
            step = {key: value for key, value in step.items() if key != "include"}
        if step:
            yield step


def stage(box, words):
    if words == "apply":
        code, said, seconds = box.apply()
    elif words.startswith("by-hand "):
        seed = f"{box.root}/var/lib/cloud/seed/nocloud"
        code, said, seconds = box.run(words.split()[1], "--root", box.root, "--seed", seed, real=False)
    else:
        code, said, seconds = box.run(*words.split(), real=True)
    return {"code": code, "said": said, "seconds": seconds}


def meanwhile(lab, given):
    def do():
        end = time.monotonic() + 10
        while given.get("up") and time.monotonic() < end and "c0" not in Observed.its_up(seen):
            time.sleep(0.02)
        time.sleep(given["after"])
        for where in ("server", "client"):
            commands(lab, where, given.get(where, []))

    seen = Observed(lab)
    # Its failure is the step's.
    pool = concurrent.futures.ThreadPoolExecutor(1)
    doing = pool.submit(do)
    pool.shutdown(wait=False)
    return doing


def commands(lab, where, lines):
    for line in lines:
        if line.startswith("sysctl "):
            run("ip", "netns", "exec", getattr(lab, where), *line.split())
        else:
            lab.ip(getattr(lab, where), *line.split())


def add_service(lab, link=0):
    """Gives the server its address on a link, and the metadata service's."""
    lab.ip(lab.server, "addr", "add", f"10.0.{link}.2/24", "dev", f"s{link}")
    lab.ip(lab.server, "addr", "replace", f"{METADATA}/32", "dev", "lo")


def needs(lab, kind):
    options = {"vlan": ["link", "c0", "name", "try0", "type", "vlan", "id", "7"]}.get(kind, ["name", "try0", "type", kind])
    try:
        lab.ip(lab.client, "link", "add", *options)
        lab.ip(lab.client, "link", "del", "try0")
    except Exception as error:
        raise Skip(f"this kernel has no {kind}") from error
