"""Frameworks that are newer than those of the lab's Debian: the next release's own, and dracut and mkinitcpio from their source,
whose folder a variable of the environment names. All make their images in a Debian tree of the next release."""

import os
from pathlib import Path

from . import images

# What each is built from: the variable, and a file by which the source is known.
SOURCES = {
    "dracut-newest": ("PREPIVOT_DRACUT", "dracut.sh"),
    "dracut-newest-overlay": ("PREPIVOT_DRACUT", "dracut.sh"),
    "dracut-newest-plain": ("PREPIVOT_DRACUT", "dracut.sh"),
    "mkinitcpio-source": ("PREPIVOT_MKINITCPIO", "mkinitcpio"),
    "mkinitcpio-usr-source": ("PREPIVOT_MKINITCPIO", "mkinitcpio"),
    "mkinitcpio-systemd-source": ("PREPIVOT_MKINITCPIO", "mkinitcpio"),
}


def why_not(framework):
    """Why images of this framework cannot be made here; None where they can."""
    if framework.endswith("-earlier"):
        return images.why_not_earlier()
    if framework not in SOURCES:
        return None
    variable, file = SOURCES[framework]
    folder = os.environ.get(variable)
    if not folder:
        return f"{variable} is not set: it names the folder with the source of {framework.split('-')[0]}"
    if not (Path(folder) / file).is_file():
        return f"there is no {file} in {folder}, which {variable} names"
    return None


def trees():
    """The folder with a Debian tree builder/ of the next release, with its frameworks and what builds the others."""
    return images.made_once("frameworks", "the Debian tree of newer frameworks",
                            ["build-frameworks-tree", "add-packages", "build-next-root", "build-root"], images.trees(), images.next_tree())
