"""Cases of user-data: a machine in namespaces of its own, which shares only /usr with this one.

case.json says what is done there: with `"after": "first boot"` all stages run, then `command`, if there is one. `prepivot` and
`cloud-init` are the program; ROOT is a root that nothing has run in. `"second boot": true` runs the stages twice, as two boots of one
instance. `"container": true` makes the machine a container. cloud.cfg goes to /etc/cloud, the other *.cfg to /etc/cloud/cloud.cfg.d, `setup` is a script that runs in
the root before the first boot, and the others are the seed. `must` and `must_not` have patterns for `output` (that of the command and
of the stages) and for files.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

STAGES = ["init --local", "init", "modules --mode config", "modules --mode final"]
ETC = {
    "os-release": 'ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n',
    "passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "shadow": "root:*:1::::::\n",
    "group": "root:x:0:\nadm:x:4:\n",
    "hostname": "image\n",
    "default/locale": "",
    "cloud/cloud.cfg": "network: {config: disabled}\nssh_deletekeys: false\n",
}
# Runs in the namespaces: R is the root, the arguments are the stages and then the command.
INSIDE = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs "$R"; cp -a "$TREE/." "$R"
mkdir -p "$R/usr" "$R/proc" "$R/sys" "$R/dev" "$R/run" "$R/tmp" "$R/root" "$R/case"
mount --rbind /usr "$R/usr"; mount -o remount,bind,ro "$R/usr" 2>/dev/null || true
for l in bin sbin lib lib64; do ln -s "usr/$l" "$R/$l"; [ ! -d "$R/pristine" ] || ln -s "usr/$l" "$R/pristine/$l"; done
[ ! -d "$R/pristine" ] || { mkdir "$R/pristine/usr"; mount --rbind "$R/usr" "$R/pristine/usr"; }
mount -t proc proc "$R/proc"; mount -t sysfs -o ro sysfs "$R/sys"; mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for n in null zero full random urandom tty; do touch "$R/dev/$n"; mount --bind "/dev/$n" "$R/dev/$n"; done
ln -s /proc/self/fd "$R/dev/fd"; ln -s fd/1 "$R/dev/stdout"; ln -s fd/2 "$R/dev/stderr"
boot() { umount "$R/run" 2>/dev/null || true; mount -t tmpfs -o mode=755 tmpfs "$R/run"; mkdir -p "$R/run/lock"; hostname image
  if [ -n "$CONTAINER" ]; then mkdir -p "$R/run/systemd"; echo lxc >"$R/run/systemd/container"; fi; }
in_root() { chroot "$R" /usr/bin/env -i PATH=/opt:/usr/sbin:/usr/bin LANG=C.UTF-8 ${CONTAINER:+SYSTEMD_VIRTUALIZATION=container:lxc} "$@" </dev/null; }
boot
[ ! -f "$R/case/setup" ] || in_root sh /case/setup
while [ "$BOOTS" -gt 0 ]; do
  for s in "init --local" init "modules --mode config" "modules --mode final"; do in_root cloud-init $s >>"$OUT" 2>&1 || true; done
  BOOTS=$((BOOTS - 1)); [ "$BOOTS" = 0 ] || boot
done
code=0
if [ -n "$COMMAND" ]; then in_root sh -c "cd /case && $COMMAND" >>"$OUT" 2>&1 || code=$?; fi
for f in $WANTED; do mkdir -p "$KEPT$(dirname "$f")"; cp -L "$R$f" "$KEPT$f" 2>/dev/null || true; stat -c %a "$R$f" >"$KEPT$f.mode" 2>/dev/null || true; done
exit $code
"""


def why_not():
    """Why no machine can be made here; None where one can."""
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "-m", "-u", "-n", "-p", "-f", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "may not make namespaces"


def tree(folder, program, at):
    """The root before its first boot."""
    for name, text in ETC.items():
        (at / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (at / "etc" / name).write_text(text)
    (at / "etc/cloud/cloud.cfg.d").mkdir()
    (at / "etc/shadow").chmod(0o640)
    (at / "opt").mkdir()
    shutil.copy(program, at / "opt/prepivot")
    (at / "opt/cloud-init").symlink_to("prepivot")
    (at / "opt/cloud-id").symlink_to("prepivot")
    shutil.copytree(folder, at / "case")
    for file in folder.iterdir():
        if file.name == "cloud.cfg":
            place = at / "etc/cloud/cloud.cfg"
        elif file.suffix == ".cfg":
            place = at / "etc/cloud/cloud.cfg.d" / file.name
        elif file.name in ("user-data", "meta-data", "vendor-data", "vendor-data2", "network-config"):
            place = at / "var/lib/cloud/seed/nocloud" / file.name
        else:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


def seen(program, case, folder):
    """The exit code, the seconds, and the text of `output` and of each file that case.json names."""
    names = {name for patterns in (case["must"], case["must_not"]) for name in patterns if name != "output"}
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for name in ("root", "tree", "kept"):
            (work / name).mkdir()
        (work / "out").touch()
        tree(folder, program, work / "tree")
        if "ROOT" in case.get("command", ""):
            shutil.copytree(work / "tree", work / "tree/pristine", ignore=shutil.ignore_patterns("case", "seed", "opt"))
        command = case.get("command", "").replace("ROOT", "/pristine")
        boots = (2 if case.get("second boot") else 1) if case.get("after") == "first boot" else 0
        settings = {
            "R": str(work / "root"), "TREE": str(work / "tree"), "OUT": str(work / "out"), "KEPT": str(work / "kept"), "BOOTS": str(boots),
            "COMMAND": command, "CONTAINER": "yes" if case.get("container") else "", "WANTED": " ".join(n.removesuffix(".mode") for n in names),
        }
        start = time.monotonic()
        done = subprocess.run(
            ["unshare", "-m", "-u", "-n", "-p", "-f", "--kill-child", "sh", "-c", INSIDE], env=dict(os.environ, **settings),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180, check=False,
        )
        seconds = time.monotonic() - start
        texts = {"output": (work / "out").read_text(errors="replace") + done.stdout.decode("utf-8", "replace")}
        for name in names:
            kept = Path(f"{work}/kept{name}")
            texts[name] = kept.read_text(errors="replace") if kept.is_file() else None
        return done.returncode, seconds, texts


def judge(program, case, folder):
    """What is wrong, and all that was seen, as text."""
    code, seconds, texts = seen(program, case, folder)
    wrong = []
    for name, patterns in case["must"].items():
        text = texts[name]
        if text is None:
            wrong.append(f"{name} is not there")
        wrong += [f"no line of {name} matches {p}" for p in patterns if text is not None and not re.search(p, text, re.MULTILINE)]
    for name, patterns in case["must_not"].items():
        found = [re.search(p, texts[name] or "", re.MULTILINE) for p in patterns]
        wrong += [f"a line of {name} matches: {f.group()}" for f in found if f]
    if code != case.get("exit", code if not case.get("command") else 0):
        wrong.append(f"exit code {code}")
    if seconds > case.get("seconds_at_most", seconds):
        wrong.append(f"it took {seconds:.1f} s")
    return wrong, "\n".join(f"--- {name}\n{text}" for name, text in texts.items())
