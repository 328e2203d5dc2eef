#!/bin/sh
# A command on a machine of its own, for the stages' cases: run in the client's namespace, in mount and host-name namespaces
# that end with it.
#
#   inside.sh MACHINE ROOT|- COMMAND…
#
# MACHINE holds proc/cmdline, sys/class/dmi/id, run, and kmsg, which represents the kernel's log. With ROOT, COMMAND runs in that root, as after the pivot; with -, in an
# initramfs: this system with a /run of its own.
set -e
machine=$1 root=$2
shift 2

# sysfs with this namespace's links and the machine's DMI and disks, whose nodes are not there.
sys=$(mktemp -d)
mount -t tmpfs sys "$sys"
mkdir -p "$sys/class/net" "$sys/class/dmi/id" "$sys/class/block" "$sys/block" "$sys/devices"
if [ -d "$machine/sys/block" ]; then cp -r "$machine/sys/block/." "$sys/block"; fi
mount --bind /sys/devices "$sys/devices"
mount --bind /sys/class/net "$sys/class/net"
mount --bind "$machine/sys/class/dmi/id" "$sys/class/dmi/id"

if [ "$root" = - ]; then
    mount --move "$sys" /sys
    mount --bind "$machine/run" /run
    mount --bind "$machine/proc/cmdline" /proc/cmdline
    mount --bind "$machine/kmsg" /dev/kmsg
    exec "$@"
fi
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/usr/lib" "$root/lib" "$root/lib64" "$root/run" "$root/tmp"
mount -t proc proc "$root/proc"
mount --bind "$machine/proc/cmdline" "$root/proc/cmdline"
mount --move "$sys" "$root/sys"
mount --bind /dev "$root/dev"
mount --bind "$machine/run" "$root/run"
# The programs' libraries.
for folder in /usr/lib /lib /lib64; do
    if [ -d "$folder" ]; then mount -o bind,ro "$folder" "$root$folder"; fi
done
exec chroot "$root" "$@"
