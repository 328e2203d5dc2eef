"""NoCloud over the network: seeds at an address."""

import os
import subprocess

from cases import Skip, all_of, bad, good, neutron, stand
from lab import Lab, run


def seed_docs(folder="/seed/"):
    return {f"{folder}meta-data": "instance-id: iid-7\nlocal-hostname: web\n", f"{folder}user-data": "#cloud-config\n"}


def a_seed_by_name(t):
    with Lab() as lab:
        stand(lab)
        lease = neutron()
        lease["options"]["15"] = "example.org".encode().hex()
        lab.serve(dhcp={"s0": lease}, dns={"seed.example.org": "10.0.0.2"}, http={"docs": seed_docs()})
        for host in ("seed.example.org", "seed"):
            line = f"ds=nocloud;s=http://{host}/seed/;h=first"
            instance = good(t.ask(lab, "NoCloud", 8, within=3, cmdline=line), {"metadata", "user_data"})["instance"]
            assert (instance["instance_id"], instance["local_hostname"]) == ("iid-7", "first"), instance
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline="ds=nocloud;s=http://nowhere.example.org/"), "host name")


def a_seed_by_serial_number(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": seed_docs("/sn-42/")})
        line = "ds=nocloud;s=http://10.0.0.2/__dmi.system-serial-number__"
        answer = t.ask(lab, "NoCloud", 8, within=3, cmdline=line, machine={"product_serial": "sn-42"})
        good(answer, {"metadata", "user_data"})


def a_seed_that_moved(t):
    with Lab() as lab:
        stand(lab)
        moved = {"/seed/meta-data": {"status": 302, "headers": {"Location": "http://10.0.0.2/new/meta-data"}}}
        lab.serve(dhcp={"s0": neutron()}, http={"docs": dict(seed_docs(), **moved, **seed_docs("/new/"))})
        good(t.ask(lab, "NoCloud", 8, within=3, cmdline="ds=nocloud;s=http://169.254.169.254/seed/"), {"metadata", "user_data"})


def no_seed_there(t):
    with Lab() as lab:
        stand(lab)
        lab.serve(dhcp={"s0": neutron()}, http={"docs": {}})
        line = "ds=nocloud;s=http://10.0.0.2/seed/?token=SECRET"
        answer = bad(t.ask(lab, "NoCloud", 8, within=8, cmdline=line), "there is no meta-data at http://10.0.0.2/seed/")
        assert "SECRET" not in answer["log"] + answer["error"]


def a_seed_by_https(t):
    with Lab() as lab:
        stand(lab)
        certificates = os.path.join(lab.folder.name, "tls")
        try:
            make_certificates(certificates)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip("no openssl to make certificates with") from error
        lab.serve(dhcp={"s0": neutron()}, dns={"seed.example.org": "10.0.0.2"},
                  http={"docs": seed_docs(), "port": 443, "tls": certificates})
        with open(f"{certificates}/ca.pem") as file:
            authority = file.read()
        line = "ds=nocloud;s=https://seed.example.org/seed/"
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline=line), "CA certificates")
        image = {"etc/ssl/certs/ca-certificates.crt": authority}
        good(t.ask(lab, "NoCloud", 8, within=4, cmdline=line, machine=image), {"metadata", "user_data"})
        other = {"etc/ssl/certs/ca-certificates.crt": open(f"{certificates}/other.pem").read()}
        bad(t.ask(lab, "NoCloud", 20, within=20, cmdline=line, machine=other), "certificate")


def make_certificates(folder):
    os.makedirs(folder)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        run("openssl", "req", "-x509", *key, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem",
            "-subj", f"/CN={name}")
    run("openssl", "req", *key[:-2], "-keyout", f"{folder}/server.key", "-out", f"{folder}/server.csr", "-subj", "/CN=seed")
    with open(f"{folder}/names", "w") as file:
        file.write("subjectAltName=DNS:seed.example.org\n")
    run("openssl", "x509", "-req", "-in", f"{folder}/server.csr", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key",
        "-days", "2", "-extfile", f"{folder}/names", "-out", f"{folder}/server.pem")


ALL = all_of(globals())
