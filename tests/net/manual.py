"""What the manual says about requests."""

import os

from lab import HERE

PAGE = os.path.join(HERE, "../../initramfs/man/prepivot-datasources.7.md")


def requests(source):
    """How many requests a first boot from this source needs, by prepivot-datasources(7)."""
    with open(PAGE) as page:
        section = page.read().split("## REQUESTS OF A FIRST BOOT")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    found = [int(row[1]) for row in rows if row[0] == source]
    assert len(found) == 1, f"prepivot-datasources(7) has {len(found)} rows for {source}"
    return found[0]


def compare(source, asked):
    """Fails where a first boot from `source` needed another number of requests than the manual says."""
    assert asked == requests(source), f"{asked} requests; prepivot-datasources(7) says {requests(source)}"
