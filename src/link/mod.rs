//! The network in the initramfs: netlink, DHCP, DNS and HTTP, all within one deadline.
//!
//! A [`Session`] raises the unused links, all at once, and opens an [`Uplink`] for each that becomes ready. A
//! service is asked through every uplink by an [`http::Client`] of its own; the first answer wins. Every
//! change is recorded, and exactly the recorded changes are undone.

mod arp;
pub mod closing;
pub mod cmdline_net;
pub mod dhcp;
pub mod dns;
pub mod http;
mod journal;
pub mod leases;
pub mod line;
mod link_table;
pub mod netlink;
pub mod own_address;
mod packet_socket;
mod raise;
pub mod rename;
mod rng;
pub mod route;
mod session;
mod setup;
pub mod system_names;
mod task;
mod tcp;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
#[cfg(feature = "tls")]
mod tls_own;
mod uplink;
pub mod url;

pub use session::{Session, Settings, Stopper, restore_left};
pub use uplink::{Reach, Uplink};
