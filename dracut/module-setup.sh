#!/bin/bash
# dracut's build side: puts prepivot into an image, as units where systemd runs it and as hooks where it does not.

check() {
    # Nothing that mounts the root device needs this.
    [[ ${mount_needs-} ]] && return 1
    require_binaries prepivot || return 1
    return 0
}

depends() {
    return 0
}

installkernel() {
    local drivers list="${dracutsysrootdir-}/etc/prepivot/drivers"
    # What the policy measures into, unless the kernel has it built in.
    [[ ! -e ${dracutsysrootdir-}/etc/prepivot/trust.conf ]] || hostonly='' instmods tpm_tis tpm_crb
    # Drivers come from the new root, unless the administrator configured a list.
    [[ -e $list ]] || return 0
    mapfile -t drivers < <(sed 's/#.*//' "$list" | xargs -r -n 1)
    # Without names, instmods reads them from standard input.
    ((${#drivers[@]})) || return 0
    # Unfiltered: the machine that builds the image has no drive in it.
    hostonly='' instmods "${drivers[@]}"
}

install() {
    local unit file root="${dracutsysrootdir-}"
    inst_simple /usr/bin/prepivot
    # The trust policy and its keys: only from here do they come.
    for file in "$root"/etc/prepivot/{trust.conf,allowed_signers,revoked_keys,identities,*.crt}; do
        [[ ! -e $file ]] || inst_simple "${file#"$root"}"
    done
    if dracut_module_included systemd; then
        for unit in prepivot-apply.service prepivot-emergency.service; do
            # Not in the same folder where /lib is one of its own (Debian 11).
            inst_simple "/usr/lib/systemd/system/$unit" "${systemdsystemunitdir:?}/$unit"
        done
        ${SYSTEMCTL:-systemctl} -q --root "${initdir:?}" add-wants initrd.target prepivot-apply.service
    else
        # By name after 10-mount-overlayfs.sh and 50-mount-usr.sh, and before 50-selinux-loadpolicy.sh.
        inst_hook pre-pivot 50 "${moddir:?}/prepivot-apply.sh"
    fi
}
