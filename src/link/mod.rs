//! Live network in the initramfs: netlink, DHCP, HTTP with one deadline.
//!
//! A [`Session`] raises the unused links, all at once, and opens a [`Uplink`] for each that becomes ready; every
//! way is asked by an [`http::Client`] of its own, and the first that leads to an answer wins. What was changed is
//! noted, and exactly that is taken back.

mod arp;
pub mod cmdline_net;
pub mod dhcp;
pub mod dns;
mod ground;
pub mod http;
mod journal;
mod known;
pub mod leases;
pub mod line;
mod netlink;
pub mod own_address;
mod packet_socket;
mod raise;
pub mod rename;
mod rng;
mod session;
mod setup;
mod tcp;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
#[cfg(feature = "tls")]
mod tls_p256;
mod uplink;
pub mod url;

pub use session::{Session, Settings, Stopper, restore_left};
pub use uplink::{Reach, Uplink};
