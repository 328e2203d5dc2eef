#!/bin/sh
# dracut without systemd, pre-mount: finds the datasource.

if [ -x /usr/bin/prepivot ] && [ ! -e /proc/vmcore ]; then
    /usr/bin/prepivot probe --framework dracut \
        || [ "$(getarg prepivot.fail=)" != emergency ] || emergency_shell -n prepivot "prepivot probe failed"
fi
