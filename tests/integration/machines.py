"""Behaviours, and the machines that show them.

A behaviour is a folder of behaviours/:
    behaviour.toml
        about      one line: what a user gets
        alone      why it needs a machine of its own; its user-data is then given as it is
        last       true: its checks come after all others, and the machine is not booted again
        claims     what of the machine it needs for itself: two behaviours that claim the same are on different machines
        warns      true: it makes prepivot warn
        clean      true: it looks whether there was no warning
        cmdline    words on the kernel command line
        console    texts that must be on the console of the first boot
        absent     texts that must not be there
        dmi        what the firmware says, by the kernel's names
        meta_data  values of NoCloud's meta-data
        [again]    the same disk is booted a second time: new_instance (true: with another instance-id), meta_data
    user-data…     parts of user-data, in the order of their names
    vendor-data…   parts of vendor-data
    network-config
    root/          files of the image
    checks         looks at the machine after the first boot (behaviour.sh has what it uses)
    again/         of the second boot: checks, and user-data… in place of the first one's

Behaviours that do not disturb each other share a machine: their parts become one MIME message. Two disturb each other that have
the same key at the top level of a cloud-config, but for LISTS, whose entries are added up.
"""

import re
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEHAVIOURS = HERE / "behaviours"
KEYS = {"about", "alone", "last", "claims", "warns", "clean", "cmdline", "console", "absent", "dmi", "meta_data", "again"}
AGAIN_KEYS = {"new_instance", "meta_data"}
FRAMEWORK = "dracut-systemd"
# Keys of a cloud-config that are lists of things which do not depend on each other.
LISTS = {"bootcmd", "runcmd", "write_files", "users", "ssh_authorized_keys", "mounts", "merge_how", "merge_type"}
# Every part says how it is merged.
MERGE = "list(append)+dict(no_replace,recurse_list)+str()"
# How many behaviours are in one machine: its checks run within the limit of guest/check.service.
MOST = 24


@dataclass
class Behaviour:
    name: str
    folder: Path
    about: str
    alone: str = ""
    last: bool = False
    claims: list = field(default_factory=list)
    warns: bool = False
    clean: bool = False
    cmdline: str = ""
    console: list = field(default_factory=list)
    absent: list = field(default_factory=list)
    dmi: dict = field(default_factory=dict)
    meta_data: dict = field(default_factory=dict)
    again: dict | None = None

    def parts(self, kind, boot=1):
        """The texts of its user-data or vendor-data by file name, for the first or the second boot."""
        if boot == 2 and (found := sorted((self.folder / "again").glob(f"{kind}*"))):
            return {path.name: path.read_text() for path in found}
        return {path.name: path.read_text() for path in sorted(self.folder.glob(f"{kind}*"))}

    def needs(self):
        """What of a machine only one behaviour can have."""
        found = set(self.claims) | {key for key in ["last", "cmdline", "dmi"] if getattr(self, key)}
        found |= {f"meta-data {key}" for key in [*self.meta_data, *(self.again or {}).get("meta_data", {})]}
        if (self.folder / "network-config").exists():
            found.add("network-config")
        found |= {f"root {path.relative_to(self.folder)}" for path in (self.folder / "root").rglob("*") if path.is_file()}
        for kind in ["user-data", "vendor-data"]:
            for boot in [1, 2]:
                for text in self.parts(kind, boot).values():
                    found |= set(re.findall(r"^([a-z_]\w*)\s*:", text, re.M)) - LISTS
        return found

    def check_files(self):
        return [name for name in ["checks", "again/checks"] if (self.folder / name).exists()]


@dataclass
class Machine:
    name: str
    behaviours: list

    @property
    def alone(self):
        return bool(self.behaviours[0].alone)

    @property
    def again(self):
        return next((one.again for one in self.behaviours if one.again is not None), None)

    def the(self, key):
        """What the one behaviour that has `key` says."""
        values = [getattr(one, key) for one in self.behaviours]
        return next(filter(None, values), values[0])

    @property
    def boots(self):
        return 1 if self.again is None else 2

    def takes(self, other):
        """Whether a behaviour can be shown by this machine too."""
        if self.alone or other.alone or len(self.behaviours) == MOST:
            return False
        if other.last and self.again is not None or other.again is not None and any(one.last for one in self.behaviours):
            return False
        if any(one.warns and other.clean or one.clean and other.warns for one in self.behaviours):
            return False
        if other.again is not None and self.again is not None and other.again.get("new_instance") != self.again.get("new_instance"):
            return False
        return not any(one.needs() & other.needs() for one in self.behaviours)


def names():
    return sorted(path.name for path in BEHAVIOURS.iterdir())


def load(name):
    folder = BEHAVIOURS / name
    given = tomllib.loads((folder / "behaviour.toml").read_text())
    unknown = set(given) - KEYS | set(given.get("again", {})) - AGAIN_KEYS
    if unknown:
        raise ValueError(f"{name}/behaviour.toml: unknown keys: {' '.join(sorted(unknown))}")
    if (folder / "again").is_dir():
        given.setdefault("again", {})
    behaviour = Behaviour(name=name, folder=folder, **given)
    if not behaviour.check_files():
        raise ValueError(f"{name}: it has no checks")
    return behaviour


def grouped(behaviours):
    """As few machines as come out when each behaviour goes to the first one that takes it; those with a second boot first."""
    machines = []
    for one in sorted(behaviours, key=lambda one: (bool(one.alone), one.again is None, one.name)):
        machine = next((machine for machine in machines if machine.takes(one)), None)
        if machine:
            machine.behaviours.append(one)
        else:
            machines.append(Machine(name=one.name if one.alone else f"machine-{len(machines) + 1}", behaviours=[one]))
    return machines


def sample(machines):
    """One machine with a second boot and one without, those with the most behaviours."""
    most = lambda boots: sorted((m for m in machines if m.boots == boots and not m.alone), key=lambda m: -len(m.behaviours))[:1]
    return most(2) + most(1)


def case(machine, folder):
    """The machine as a case of the boot tests (lab/case.py), whose files are written into `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    place = folder / "root/boot-test/behaviours"
    place.mkdir(parents=True)
    shutil.copy(HERE / "behaviour.sh", place.parent)
    for one in machine.behaviours:
        if (one.folder / "root").is_dir():
            shutil.copytree(one.folder / "root", folder / "root", symlinks=True, dirs_exist_ok=True)
        for name in one.check_files():
            (place / one.name / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one.folder / name, place / one.name / name)
    boots = []
    for boot, name in list(enumerate(["checks", "again/checks"], 1))[:machine.boots]:
        script = folder / f"boot{boot}"
        shown = [one.name for one in sorted(machine.behaviours, key=lambda one: one.last) if name in one.check_files()]
        script.write_text("".join(f"timeout 300 bash ./behaviour.sh {one} {name} || failed=yes\n" for one in shown))
        boots.append({"drives": [{"files": documents(machine, boot), "label": "cidata"}], "checks": script.name,
                      "dmi": machine.the("dmi")})
    for key in ["console", "absent"]:
        boots[0][key] = [text for one in machine.behaviours for text in getattr(one, key)]
    return {"framework": FRAMEWORK, "root": "installed", "cmdline": machine.the("cmdline"), "boot": boots}


def documents(machine, boot):
    """NoCloud's documents of a boot, by name."""
    meta = {"instance-id": f"i-{machine.name}", "local-hostname": machine.name}
    for one in machine.behaviours:
        meta |= one.meta_data | ((one.again or {}).get("meta_data", {}) if boot == 2 else {})
    if boot == 2 and (machine.again or {}).get("new_instance"):
        meta["instance-id"] += "-new"
    found = {"meta-data": "".join(f"{key}: {value}\n" for key, value in meta.items())}
    for kind in ["user-data", "vendor-data"]:
        parts = {f"{one.name}-{name}": text for one in machine.behaviours for name, text in one.parts(kind, boot).items()}
        if machine.alone and len(parts) == 1:
            found[kind] = next(iter(parts.values()))
        elif parts or kind == "user-data":
            found[kind] = mime(parts)
        for one in machine.behaviours:
            if (one.folder / "network-config").exists():
                found["network-config"] = (one.folder / "network-config").read_text()
    return found


def mime(parts):
    """One message of the parts. What a part is, its first line says."""
    boundary = "==== a part of user-data ===="
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for name, text in parts.items():
        lines.append(f"--{boundary}")
        # A message has headers of its own.
        if not text.startswith("MIME-Version:"):
            lines += ['Content-Type: text/plain; charset="utf-8"', f"Merge-Type: {MERGE}",
                      f'Content-Disposition: attachment; filename="{name}"', ""]
        lines.append(text.removesuffix("\n"))
    return "\n".join([*lines, f"--{boundary}--", ""])
