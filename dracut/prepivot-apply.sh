#!/bin/sh
# dracut without systemd, pre-pivot: provisions the new root.

if [ -x /usr/bin/prepivot ] && [ ! -e /proc/vmcore ]; then
    /usr/bin/prepivot apply --root "$NEWROOT" --framework dracut \
        || { [ "$(getarg prepivot.fail=)" != emergency ] && [ ! -e /run/prepivot/stopped ]; } || emergency_shell -n prepivot "prepivot apply failed"
fi
