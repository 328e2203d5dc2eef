"""A machine of one case that boots by stages: prepivot itself as it runs in the initramfs and in the real root, in the lab's
client namespace, with a root, a /run, a kernel command line and DMI values of its own."""

import json
import os
import shutil
import subprocess
import time

from lab import HERE

UUID = "7f3e0c4a-5f3b-4a53-9e7d-6a3e0c1f2b3d"
#: What the DMI of a machine that nova made says.
NOVA_DMI = {"product_name": "OpenStack Nova", "sys_vendor": "OpenStack Foundation", "product_uuid": UUID}
#: No modules run but those that a case configures.
NO_MODULES = {"cloud_init_modules": [], "cloud_config_modules": [], "cloud_final_modules": [], "users": []}


class Machine:
    """`Machine(lab, program, cmdline=…, dmi=…, config=…)`: its image has netplan, which notes what it is called with."""

    def __init__(self, lab, program, cmdline="", dmi=None, config=None, virt="kvm"):
        self.lab, self.program = lab, program
        #: The kind of machine, instead of that of the host (systemd's variable).
        self.environment = {"SYSTEMD_VIRTUALIZATION": f"vm:{virt}" if virt != "none" else virt}
        self.base = os.path.join(lab.folder.name, "box")
        self.root = os.path.join(self.base, "root")
        os.makedirs(os.path.join(self.base, "run"))
        self.write("proc/cmdline", cmdline + "\n", self.base)
        os.makedirs(os.path.join(self.base, "sys/class/dmi/id"))
        for key, value in (NOVA_DMI if dmi is None else dmi).items():
            self.write("sys/class/dmi/id/" + key, value + "\n", self.base)
        self.write("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
        self.configure(**(config or {}))
        self.install(program, "usr/bin/prepivot")
        self.install("/bin/sh", "bin/sh")
        self.write("usr/sbin/netplan", '#!/bin/sh\necho "netplan $*" >>/commands\n')
        os.chmod(os.path.join(self.root, "usr/sbin/netplan"), 0o755)

    def configure(self, **config):
        """The image's own configuration; JSON is YAML."""
        self.write("etc/cloud/cloud.cfg", json.dumps(dict(NO_MODULES, **config)))

    def install(self, program, path):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(os.path.realpath(program), path)

    def write(self, path, text, base=None):
        path = os.path.join(base or self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def read(self, path, base=None):
        """A file's text; empty where there is none."""
        path = os.path.join(base or self.root, path)
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def drive(self, docs, folder="config-drive/openstack/latest"):
        """OpenStack's documents in the folder that represents a drive."""
        for name, document in docs.items():
            self.write(f"{folder}/{name}", document if isinstance(document, str) else json.dumps(document))

    def detach(self):
        shutil.rmtree(os.path.join(self.root, "config-drive"))

    def run(self, *words, real, limit=60):
        """Runs a verb of prepivot; gives its exit code, what it said, and the seconds that it took."""
        inside = os.path.join(HERE, "inside.sh")
        command = ["ip", "netns", "exec", self.lab.client, "unshare", "--mount", "--uts", inside, self.base]
        command += [self.root, "/usr/bin/prepivot"] if real else ["-", self.program]
        self.write("kmsg", "", self.base)
        started = time.monotonic()
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=limit, env=dict(os.environ, **self.environment))
        said = done.stdout + done.stderr + self.read("kmsg", self.base)
        return done.returncode, said, time.monotonic() - started

    def apply(self, limit=60):
        """The initramfs's stage, on the root."""
        return self.run("apply", "--root", self.root, real=False, limit=limit)

    def init(self, *words, limit=60):
        """A stage of the real root: `--local`, or the network stage without words."""
        return self.run("init", *words, real=True, limit=limit)

    def reboot(self):
        """What does not outlive a boot is gone."""
        shutil.rmtree(os.path.join(self.base, "run"))
        os.makedirs(os.path.join(self.base, "run"))

    def console(self):
        """What the last run in the initramfs showed on the console, whatever the log level: the kernel's log from level 3 up."""
        return [line[3:] for line in self.read("kmsg", self.base).splitlines() if line[:3] in ("<0>", "<1>", "<2>", "<3>")]

    def status(self):
        """status.json, from the disk or from /run."""
        text = self.read("var/lib/cloud/data/status.json") or self.read("run/cloud-init/status.json", self.base)
        return json.loads(text)["v1"] if text else None

    def commands(self):
        return self.read("commands").splitlines()
