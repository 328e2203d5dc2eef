#!/bin/bash
# A dracut module with systemd-imds, for which dracut has none: what it imports in the initrd is in /run/credstore before the real
# root's units look there. Its generator starts it on the clouds that it knows. Used by tests/bench/peers.

check() {
    return 255
}

depends() {
    echo hwdb systemd-networkd systemd-sysusers
}

install() {
    local unit
    inst_sysusers systemd-imds.conf
    # The generator's units wait for the device that udev makes of the firmware's tables.
    inst_rules 60-dmi-id.rules
    # Opened while it runs, so that dracut does not see it among the program's libraries.
    inst_libdir_file "libcurl.so.4*"
    inst_multiple "${systemdutildir:?}"/systemd-imds{,d} "$systemdutildir/system-generators/systemd-imds-generator"
    for unit in systemd-imds-early-network.service systemd-imds-import.service systemd-imdsd.socket systemd-imdsd@.service; do
        inst_simple "${systemdsystemunitdir:?}/$unit"
    done
}
