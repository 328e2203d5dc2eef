//! The addresses of services that are closed to users, if the configuration asks for it (`close_metadata_service`).

use super::table::Source;
use crate::instance::Instance;
use crate::root::run_dir::ClosedAddress;

/// What of a source's service is closed to users.
#[derive(Clone, Copy)]
pub struct Closing {
    pub addresses: &'static [ServiceAddress],
    /// For the manual: what at these addresses, or beside them, goes on.
    pub stays: &'static str,
}

/// An address of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServiceAddress {
    /// An IP address. Empty: the one from which the instance was read.
    pub host: &'static str,
    /// The ports of TCP that are closed. None: everything.
    pub tcp: &'static [u16],
}

impl ServiceAddress {
    /// An address that has nothing but the service.
    pub const fn whole(host: &'static str) -> ServiceAddress {
        ServiceAddress { host, tcp: &[] }
    }

    /// The ports of an address that has more than the service, such as DNS.
    pub const fn tcp(host: &'static str, tcp: &'static [u16]) -> ServiceAddress {
        ServiceAddress { host, tcp }
    }
}

/// The addresses that services have in most clouds. A machine that was provisioned from a drive has one of them, too.
pub const LINK_LOCAL: Closing = Closing {
    addresses: &[
        ServiceAddress::tcp("169.254.169.254", &[80, 443]),
        ServiceAddress::tcp("fe80::a9fe:a9fe", &[80, 443]),
    ],
    stays: "what else has the address",
};

/// The addresses to close on a machine with this instance; without one, or one of an unknown source, [`LINK_LOCAL`].
pub fn addresses(source: Option<&Source>, instance: Option<&Instance>) -> Vec<ClosedAddress> {
    let closing = source.map_or(LINK_LOCAL, |source| source.closing);
    let own = instance.and_then(|instance| place(&instance.subplatform));
    let host = |host: &str| if host.is_empty() { own.map(str::to_owned) } else { Some(host.to_owned()) };
    let known = closing.addresses.iter();
    known.filter_map(|one| Some(ClosedAddress { address: host(one.host)?, tcp: one.tcp.to_vec() })).collect()
}

/// The address in `metadata (http://ADDRESS/…)`.
fn place(subplatform: &str) -> Option<&str> {
    let (_, url) = subplatform.split_once("(http://")?;
    url.split(['/', ':', ')']).next().filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SOURCES, named};
    use std::net::IpAddr;

    #[test]
    fn every_row_has_addresses() {
        for source in SOURCES {
            assert!(!source.closing.addresses.is_empty(), "{}", source.name);
            for host in source.closing.addresses.iter().map(|one| one.host).filter(|host| !host.is_empty()) {
                assert!(host.parse::<IpAddr>().is_ok(), "{}: {host}", source.name);
            }
        }
    }

    #[test]
    fn names_of_an_address_stay_open() {
        let closed = |name: &str| {
            let all = addresses(named(name), None);
            all.into_iter().map(|one| format!("{} {}", one.address, one.tcp.len())).collect::<Vec<_>>()
        };
        assert_eq!(closed("Azure"), ["169.254.169.254 1", "168.63.129.16 2"]);
        assert_eq!(closed("GCE"), ["169.254.169.254 3", "fd20:ce::254 3"]);
        assert_eq!(closed("Ec2"), ["169.254.169.254 0", "fd00:ec2::254 0"]);
        assert_eq!(closed("ConfigDrive"), closed("nothing"));
    }

    #[test]
    fn router_is_closed_where_the_instance_came_from() {
        let closed = |subplatform: &str| {
            let instance = Instance { subplatform: subplatform.into(), ..Instance::default() };
            addresses(named("CloudStack"), Some(&instance)).into_iter().map(|one| one.address).collect::<Vec<_>>()
        };
        assert_eq!(closed("metadata (http://10.1.1.1/)"), ["10.1.1.1"]);
        assert_eq!(closed("seed-dir (/var/lib/cloud/seed/cs)"), [""; 0]);
    }
}
