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
    inst_multiple "${systemdutildir:?}"/systemd-imds{,d} "$systemdutildir/system-generators/systemd-imds-generator"
    for unit in systemd-imds-early-network.service systemd-imds-import.service systemd-imdsd.socket systemd-imdsd@.service; do
        inst_simple "${systemdsystemunitdir:?}/$unit"
    done
}
