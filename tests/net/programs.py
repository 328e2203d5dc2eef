"""The cases that data does not describe: what they expect is a relation between several labs (when machines ask that boot at once;
how the time depends on the delay of the links), or needs certificates that are made for it. Each puts its changes over a file of
shared/ and runs that as any other case."""

import os
import subprocess

import case
from case import Case, Skip
from data import over
from lab import run
from observed import Observed
from served import served


def of(suite, **changes):
    """A case as data: a suite with changes."""
    return case.complete({"about": suite, "suite": suite, **changes})[0]


def repeats_are_spread(programs):
    """Machines that boot at once do not ask at once: the waits grow, and each is drawn by lot. They are longer from the start if the
    service turns machines away."""
    firsts = []
    for status, waits in ((500, (0.25, 0.5, 1)), (500, (0.25, 0.5, 1)), (500, (0.25, 0.5, 1)), (503, (1, 4)), (429, (1, 4))):
        fault = {"fault": "status", "status": status}
        one = Case(of("service", outcome="failed", ask={"deadline": 4 if status == 500 else 9}, serve={"http": {"faults": [fault]}}), programs)
        with one.lab() as lab:
            seen = Observed(lab)
            one.step(seen, {"ask": {}}, "")
            gaps = seen.value("gaps")
        for wait, gap in zip(waits, gaps, strict=False):
            assert 0.48 * wait <= gap <= 1.7 * wait + 0.1, (status, gaps)
        firsts.append(gaps[0])
    assert max(firsts) - min(firsts) > 0.001, firsts


def round_trips(programs):
    """From the start to data in hand, at several delays: DHCP 2, ARP 1, connection 1, first document 1, the others 2."""
    times = []
    for delay in (0, 10, 100):
        one = Case(of("neutron", lab={"delay": delay / 2000}, ask={"within": 6}), programs)
        with one.lab() as lab:
            seen = Observed(lab)
            one.step(seen, {"ask": {}}, "")
            times.append((delay, seen.answer["seconds"]))
    base = times[0][1]
    trips = [(seconds - base) / (delay / 1000) for delay, seconds in times if delay]
    assert trips[1] <= 8, f"{trips[1]:.1f} round trips at 100 ms"
    measured = ", ".join(f"{delay} ms: {seconds:.3f} s" for delay, seconds in times)
    return f"{measured}: {trips[0]:.1f} and {trips[1]:.1f} round trips"


def a_seed_by_https(programs):
    """The root's certificate authorities are the ones that a seed's server is checked with."""
    one = Case(of("seed"), programs)
    with one.lab() as lab:
        certificates = os.path.join(lab.folder.name, "tls")
        try:
            make_certificates(certificates)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip("no openssl to make certificates with") from error
        lab.stop()
        change = {"dns": {"seed.example.org": "10.0.0.2"}, "http": {"port": 443, "tls": certificates}}
        lab.serve(**served(over(one.case["serve"], change)))
        ask = {"cmdline": "ds=nocloud;s=https://seed.example.org/seed/"}
        for authority, change, outcome, error in (
                (None, {"deadline": 20, "within": 20}, "failed", "CA certificates"),
                ("ca", {"within": 4}, "whole", None),
                ("other", {"deadline": 20, "within": 20}, "failed", "certificate")):
            if authority:
                with open(f"{certificates}/{authority}.pem") as file:
                    change = dict(change, machine={"etc/ssl/certs/ca-certificates.crt": file.read()})
            expected = {"answer.error": {"holds": error}} if error else {}
            one.step(Observed(lab), {"ask": dict(ask, **change), "outcome": outcome, "expect": expected}, "")


def make_certificates(folder):
    """ca.pem, other.pem, and server.pem of the first for seed.example.org."""
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


ALL = [repeats_are_spread, round_trips, a_seed_by_https]
#: Those that measure time.
ALONE = [round_trips]
