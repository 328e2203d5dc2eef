//! What other programs make of what prepivot installs and writes: shells, initramfs frameworks, systemd and network stacks.

mod hooks;
mod install;
mod network;
