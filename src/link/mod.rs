//! Live network in the initramfs: netlink, DHCP, HTTP with one deadline.
