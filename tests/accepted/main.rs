//! Whether other programs accept what prepivot installs and writes: shells, initramfs frameworks, systemd, network
//! stacks and package managers.

mod apt;
mod hooks;
mod install;
mod network;
mod roots;
mod rpm;
