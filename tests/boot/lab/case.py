"""A case: a folder that says what machine to boot, with which drives, and what must come out.

case.toml:
    about      one line: what a user gets
    framework  the initramfs (build-initramfs); with "-earlier", that of an earlier version of prepivot (build-earlier)
    extra      true: not a part of the sample, because another case of it boots through the same steps
    machine    of another kind than this one (lab/machines.py, KINDS); its framework is "image" and its root "systemd"
    root       "systemd" (the default), "installed" (the same with prepivot in it), "earlier" (with an earlier version of it, and this
               one in /boot-test/this-version), "next" (Debian's next release), "selinux" (with its policy, which is enforced) or
               "busybox"
    remove     paths taken out of the root image (a pattern may be used)
    cmdline    words added to the kernel command line; @PARTUUID@ is that of the first partition of the root's disk
    own        folders of the root that are file systems of their own, each on a further disk with the folder's name as label
    format     what the root's disk is instead of ext4 (lab/layouts.py, MAKE), or "folder"; its checks are on another disk
    read_only  true: the root disk cannot be written at all
    full       true: the root filesystem has no free block
    server     what serves the root: "nbd" and "iscsi" its disk, "nfs" and "virtiofs" a folder, which its `format` is (lab/server.py)
    units      units of guest/ that sysinit.target of the root wants
    disk       what the root lies on: a partition of a table, or more (lab/disks.py, KINDS); its checks are on another disk.
               "gpt-auto": those of `own` are partitions of the same disk, known by their types
    slots      true: the root is there twice, on disks labelled root and root-b; root-b/ is copied into the second one
    every      keys that each boot has which does not say otherwise
    [[boot]]   one for each time the machine is switched on, always with the same disks
        drives   list of {documents, format, label, bus, partition, texts, files}; DRIVE has what is left out; `files`,
                 texts by path, are all that is on it (lab/texts.py's words stand in them)
        enlarge  MiB that the root's disk gains before
        cut      {at, after, writes}: the power fails `after` seconds after the text `at` on the console, on a disk that takes no
                 more than `writes` a second
        unreadable   text: reading the drives' sectors that hold it fails
        late     text on the console at which the drives are plugged in (without it they are there from the start)
        service  a metadata service and the NICs that lead to it (lab/service.py)
        slot     "b": the second of the two roots is booted
        framework    of this boot, instead of the case's
        policy   the text of /etc/prepivot/trust.conf in the initramfs; the machine has a TPM then
        sealed   texts of documents, by name: each is sealed to that TPM and to the values that its PCR 12 will have after the
                 others of the boot's first drive or service, and what is sealed is the document (lab/sealed.py)
        changed  by the name of a document a piece of it, and what is in its place after the others were sealed
        plain    files of the root by text: after the boot these alone, of all that is on its disk, have it
        nics     how many NICs the machine has, where there is no service; 1 without it
        uuid     the machine's UUID, given with nova's other marks; without it the machine has none of them
        dmi      what the firmware says of another machine, by the kernel's names (lab/vm.py, SMBIOS)
        expect   values for the checks of guest/cloud, which are used then
        checks   the file of the folder that checks from inside; "" when the machine is not expected to come up
        console  texts that must be on the console (a machine without checks is ended when they are)
        absent   texts that must not be on the console
root/ beside it is copied into the root image.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from . import disks, drive, frameworks, images, layouts, machines, sealed, server, service, texts, vm

CASES = images.BOOT / "cases"
DRIVE = {"documents": "server", "format": "iso", "label": "config-2", "bus": "cdrom", "partition": False,
         "texts": {}, "files": {}}
KEYS = {"about", "framework", "extra", "machine", "root", "remove", "cmdline", "own", "format", "read_only", "full", "server",
        "units", "disk", "slots", "boot"}
BOOT_KEYS = {"drives", "enlarge", "cut", "unreadable", "late", "service", "nics", "uuid", "checks", "console", "absent", "dmi",
             "expect", "slot", "policy", "sealed", "changed", "plain", "framework"}
# What the checks of several cases share.
HELPERS = ["provisioned", "networked", "furnished", "both-ways", "tidy", "left", "grown", "remember", "same", "served",
           "served-again", "reached", "numbered", "cloned", "added", "measured", "kept", "labelled"]
# Looks before the checks do, at what the initramfs left.
FIRST_UNIT = "left.service"
# The disk of the second root, named as its label.
SECOND = "root-b.img"
# Writes down how large the root is before the first service.
SPACE_UNIT = "space.service"


@dataclass
class Lab:
    """What every case uses: made before the first one."""
    work: Path
    trees: Path
    roots: dict        # kind of root, or machine of another kind -> image
    initramfs: dict    # framework, or machine of another kind -> image
    made: dict         # kind of disk -> image, of those that a machine makes
    key: Path          # the private SSH key; its public half replaces @SSH_KEY@ in documents


def names():
    return sorted(path.name for path in CASES.iterdir())


def load(name):
    case = tomllib.loads((CASES / name / "case.toml").read_text())
    every = case.pop("every", {})
    case["boot"] = [every | boot for boot in case.get("boot", [{}])]
    unknown = set(case) - KEYS | {key for boot in case["boot"] for key in set(boot) - BOOT_KEYS}
    if unknown:
        raise ValueError(f"{name}/case.toml: unknown keys: {' '.join(sorted(unknown))}")
    return case


def frameworks_of(case):
    """The case's own, and those of its boots."""
    return {case["framework"]} | {boot["framework"] for boot in case.get("boot", []) if "framework" in boot}


def prepare(work, cases):
    """Everything that `cases` share, made in the folder `work`: roots, the initramfs of each framework they use, a key."""
    images.require_tools()
    if not images.PROGRAM.exists():
        subprocess.run([images.PROJECT / "initramfs/build"], check=True)
    work.mkdir(parents=True, exist_ok=True)
    others = {one["machine"] for one in cases if "machine" in one}
    cases = [one for one in cases if "machine" not in one and not why_not_made(one)]
    lab = Lab(work=work, trees=images.trees(), roots={}, initramfs={}, made={}, key=make_key(work / "id"))
    for kind in sorted({one.get("root", "systemd") for one in cases}):
        lab.roots[kind] = work / f"root-{kind}.img"
        images.root_image(kind, lab.trees, lab.roots[kind])
    builder = work / "builder"
    wanted = sorted(set().union(*map(frameworks_of, cases)))
    # Some are made in a Debian that has more packages, or is newer.
    trees = {"earlier": images.trees, "disks": disks.trees, "layouts": layouts.trees, "server": server.trees,
             "next": frameworks.trees, "newest": frameworks.trees, "source": frameworks.trees}
    special = {name: kind for name in wanted for kind in trees if kind in name.split("-")}
    for kind in ["", *trees]:
        chosen = [name for name in wanted if special.get(name, "") == kind]
        if chosen:
            shutil.rmtree(builder, ignore_errors=True)
            images.builder(trees[kind]() if kind else lab.trees, builder, images.earlier() if kind == "earlier" else None)
        for framework in chosen:
            lab.initramfs[framework] = work / f"{framework}.img"
            images.initramfs(framework, builder, lab.initramfs[framework])
    shutil.rmtree(builder, ignore_errors=True)
    for name in sorted(others):
        if not machines.why_not(name):
            lab.roots[name], lab.initramfs[name] = work / f"root-{name}.img", work / f"image-{name}.img"
            images.root_image("systemd", lab.trees, lab.roots[name], source=machines.trees(name) / "root")
            machines.initramfs(name, lab.initramfs[name])
    if "dracut-disks" in wanted:
        lab.made.update(disks.make(work, lab.initramfs["dracut-disks"]))
    return lab


def run(name, lab):
    """Boot the machine of a case of cases/, as `boot_all` does."""
    return boot_all(load(name), CASES / name, lab.work / name, lab)


def boot_all(case, source, folder, lab):
    """Boot the machine of `case`, whose checks and root/ are in the folder `source`; disks and logs go into `folder`. Gives the
    list of what was wrong (empty: it passed), and the seconds of each boot."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root, others = prepare_disks(case, source, folder, lab)
    wrong, seconds = [], []
    for number, boot in enumerate(case["boot"], 1):
        seal(boot, folder, lab)
        prefix = f"boot {number}: " if len(case["boot"]) > 1 else ""
        cut = boot.get("cut", {})
        checks = boot.get("checks", "" if "expect" in boot or cut else "checks")
        script = source / checks if checks else images.BOOT / "guest/cloud" if "expect" in boot else None
        units = [FIRST_UNIT] if "service" in boot else [SPACE_UNIT] if case.get("disk") in disks.TABLES else []
        units += case.get("units", [])
        slot = folder / SECOND if boot.get("slot") == "b" else root
        place = folder / "checks.img" if has_disk_of_checks(case) else slot
        put_checks(place, script, folder, lab, units, boot.get("expect", {}) | {"served": "yes" if "service" in boot else ""}, offset(case))
        if "enlarge" in boot:
            with open(root, "r+b") as file:
                file.truncate(root.stat().st_size + (boot["enlarge"] << 20))
        if case.get("full") and number == 1:
            images.fill(root)
        kind = case.get("machine")
        image = lab.initramfs[kind or boot.get("framework", case["framework"])]
        machine = vm.Machine(
            kernel=images.kernel(machines.trees(kind) if kind else lab.trees),
            initrd=initrd(image, boot, folder), tpm=folder / "tpm" if "policy" in boot else None,
            board=kind or vm.PC, root=root, disks=others,
            cmdline=" ".join([disks.MADE.get(case.get("disk"), ""), layouts.cmdline(root),
                              server.CMDLINE.get(case.get("server"), ""), words(case, root),
                              "" if slot == root else f"root=LABEL={slot.stem}"]).strip(),
            writes=cut.get("writes", 0), logs=folder / f"boot{number}", dmi=dmi(boot),
            drives=make_drives(boot, folder / f"drives{number}", lab), late=boot.get("late", ""),
            unreadable=boot.get("unreadable", ""), read_only_root=case.get("read_only", False),
            nics=[None] * boot.get("nics", 1))
        with contextlib.ExitStack() as stack:
            served = None
            if "service" in boot:
                served = stack.enter_context(service.Service(boot["service"], folder / f"drives{number}", public(lab)))
                machine.nics = served.nics
            if case.get("server"):
                machine.export = stack.enter_context(server.exported(case["server"], root, folder, machine.memory))
            until = [cut["at"]] if cut else boot.get("console", []) if not script else ()
            outcome = vm.boot(machine, until=until, after=cut.get("after", 0))
            found = [f"the console does not say '{cut['at']}'"] if cut and outcome.ended != "seen" else []
            found += judge(boot, bool(script), outcome) + (served.wrong() if served else [])
            found += [f"'{text}' on the disk: {why}" for text, paths in boot.get("plain", {}).items()
                      for why in sealed.strays(root, text, paths)]
        seconds.append(outcome.seconds)
        wrong += [prefix + text for text in found]
    return wrong, seconds


def initrd(image, boot, folder):
    """The initramfs, with the boot's trust policy in a further archive at its end."""
    if "policy" not in boot:
        return image
    tree, whole = folder / "policy", folder / "initrd.img"
    put_policy(boot, tree / "etc/prepivot")
    # Only the folders that are new, so that the modes of others stay.
    names = "etc/prepivot\netc/prepivot/trust.conf\n"
    archive = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, input=names.encode(),
                             stdout=subprocess.PIPE, check=True).stdout
    content = image.read_bytes()
    whole.write_bytes(content + bytes(-len(content) % 4) + archive)
    return whole


def put_policy(boot, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trust.conf").write_text(boot["policy"])


def seal(boot, folder, lab):
    """Replace the documents that a boot has sealed, and those that change afterwards, on its drives and in its service."""
    if "sealed" not in boot:
        return
    places = [*boot.get("drives", []), *([boot["service"]] if "service" in boot else [])]
    tree, policy, asked = folder / "reference", folder / "policy/etc/prepivot", DRIVE | places[0]
    drive.write_tree(tree, images.BOOT / "drives" / asked["documents"], asked["texts"], public(lab))
    if not boot.get("drives"):
        # A service has none of a drive's documents of EC2.
        shutil.rmtree(tree / "ec2")
    put_policy(boot, policy)
    made = sealed.texts(boot["sealed"], tree, policy, folder / "tpm")
    for name, pieces in boot.get("changed", {}).items():
        made[name] = (tree / "openstack/latest" / name).read_text().replace(*pieces, 1)
    for place in places:
        place["texts"] = place.get("texts", {}) | made


def prepare_disks(case, source, folder, lab):
    kind = case.get("machine") or case.get("root", "systemd")
    root = folder / "root.img"
    if case.get("disk") in disks.MADE:
        images.run("cp", "--sparse=always", "--reflink=auto", lab.made[case["disk"]], root)
        return root, [disk_of_checks(folder)]
    others = []
    if "own" in case or "format" in case:
        root, others = layouts.make(case, source / "root", folder, lab)
    elif "disk" in case:
        disks.partitioned(case["disk"], lab.roots[kind], root)
    else:
        images.run("cp", "--sparse=always", "--reflink=auto", lab.roots[kind], root)
    removed = [f"/{path.relative_to(lab.trees / 'root')}" for pattern in case.get("remove", [])
               for path in (lab.trees / "root").glob(pattern)]
    if "format" in case:
        others.append(disk_of_checks(folder))
    else:
        images.edit_root(root, source / "root", removed, offset(case))
    if case.get("slots"):
        others.append(folder / SECOND)
        images.run("cp", "--sparse=always", "--reflink=auto", root, others[-1])
        images.edit_root(others[-1], source / "root-b", [])
        images.run("tune2fs", "-L", others[-1].stem, others[-1])
    data = folder / "data.img"
    images.mkfs(data, "data", 8)
    return root, [data, *others]


def has_disk_of_checks(case):
    """What the root is cannot be written from here."""
    return case.get("disk") in disks.MADE or "format" in case


def disk_of_checks(folder):
    (folder / "checks").mkdir()
    images.put_runner(folder / "checks")
    images.mkfs(folder / "checks.img", "checks", 8, folder / "checks")
    return folder / "checks.img"


def words(case, root):
    """The words that the case adds to the kernel command line."""
    added = case.get("cmdline", "")
    if "@PARTUUID@" not in added:
        return added
    uuid = subprocess.run(["sfdisk", "--part-uuid", root, "1"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return added.replace("@PARTUUID@", uuid.strip().lower())


def offset(case):
    """Where in the root's image its file system begins, in bytes."""
    return disks.START if case.get("disk") in [*disks.TABLES, "gpt-auto"] else 0


def why_not_made(case):
    """Why a root or an initramfs of the case cannot be made here; None where they can."""
    reasons = [frameworks.why_not(framework) for framework in sorted(frameworks_of(case))]
    reasons += [images.why_not_earlier()] if case.get("root") == "earlier" else []
    return next(filter(None, reasons), None)


def why_not(name):
    """Why the case cannot be run here, on a machine on which others can; None where it can."""
    case = load(name)
    if "machine" in case and (reason := machines.why_not(case["machine"])):
        return reason
    if reason := why_not_made(case):
        return reason
    if "server" in case and (reason := server.why_not(case["server"])):
        return reason
    if any("policy" in boot for boot in case["boot"]) and (reason := images.missing({"swtpm": "swtpm"})):
        return reason
    if any("sealed" in boot for boot in case["boot"]) and (reason := sealed.why_not()):
        return reason
    return service.net.why_not() if any("service" in boot for boot in case["boot"]) else None


def dmi(boot):
    """What the firmware says."""
    return vm.nova(boot["uuid"]) if "uuid" in boot else boot.get("dmi", {})


def put_checks(root, checks, folder, lab, units, expected, offset):
    """The checks of this boot, what they expect, the key and the shared helpers, into /boot-test of the root image (or into the
    disk of checks); and `units` of guest/."""
    if not checks:
        return
    tree = folder / "guest"
    shutil.rmtree(tree, ignore_errors=True)
    place = tree if root.name == "checks.img" else tree / "boot-test"
    place.mkdir(parents=True)
    shutil.copy(checks, place / "checks")
    for helper in HELPERS:
        shutil.copy(images.BOOT / "guest" / helper, place)
    shutil.copy(lab.key, place / "id")
    lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in expected.items()]
    (place / "expected").write_text("".join(lines))
    for unit in units:
        wants = tree / "etc/systemd/system/sysinit.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        shutil.copy(images.BOOT / "guest" / unit, wants.parent)
        (wants / unit).symlink_to(f"../{unit}")
    images.edit_root(root, tree, [], offset)


def make_drives(boot, folder, lab):
    folder.mkdir()
    made = []
    for number, given in enumerate(boot.get("drives", [])):
        asked = DRIVE | given
        if set(asked) != set(DRIVE):
            raise ValueError(f"unknown keys of a drive: {set(asked) - set(DRIVE)}")
        tree, image = folder / f"tree{number}", folder / f"{number}.img"
        if asked["files"]:
            drive.write_files(tree, texts.filled(asked["files"], public(lab)))
        else:
            changed = texts.filled(asked["texts"], public(lab))
            drive.write_tree(tree, images.BOOT / "drives" / asked["documents"], changed, public(lab))
        drive.make_image(tree, image, asked["format"], asked["label"], asked["partition"])
        made.append((image, asked["bus"]))
    return made


def public(lab):
    return lab.key.with_suffix(".pub").read_text().strip()


def judge(boot, checked, outcome):
    wrong = [f"the console does not say '{text}'" for text in boot.get("console", []) if text not in outcome.console]
    wrong += [f"the console says '{text}'" for text in boot.get("absent", []) if text in outcome.console]
    if checked:
        results = re.findall(r"^CHECK (ok|FAIL) (.*)$", outcome.checks, re.M)
        wrong += [text for verdict, text in results if verdict == "FAIL"]
        if "CHECK end" not in outcome.checks:
            last = [line for line in outcome.console.splitlines() if line.strip()][-3:]
            wrong.append(f"the machine did not finish its checks ({outcome.ended}); the console ends: {' | '.join(last)}")
        elif not results:
            wrong.append("the machine checked nothing")
    return wrong


def make_key(path):
    for old in (path, path.with_suffix(".pub")):
        old.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "boot test", "-f", path], check=True)
    return path
