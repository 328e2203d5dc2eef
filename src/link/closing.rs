//! Keeps users from services at known addresses, by two means that the kernel has, without a program of the root: a table of
//! nf_tables, and policy rules. The rules alone leave a way on IPv4 for a program that binds its socket to a device
//! (SO_BINDTODEVICE); the table alone is removed by `nft flush ruleset`, and makes a program wait for its own time limit.

use super::netlink::rules::{self, Change};
use super::netlink::{Exchange, tables};
use crate::root::run_dir::Closed;
use nix::libc::{EAFNOSUPPORT, EEXIST, ENOENT, EOPNOTSUPP};
use std::io;
use std::net::IpAddr;

/// Root's number.
const ROOT: u32 = 0;

/// How each of the two means went.
#[derive(Debug)]
pub struct Layers {
    pub table: io::Result<()>,
    pub rules: io::Result<()>,
}

/// Closes them, in this process's network namespace. What is there already stays, or is put in place at once.
pub fn close(closed: &Closed) -> Layers {
    let (places, users) = (places(closed), users(closed));
    let table = Exchange::netfilter().and_then(|kernel| kernel.ask(tables::set(&places, &users))).map(drop);
    Layers { table, rules: change_rules(&places, &users, Change::Add) }
}

/// Opens them again: removes what [`close`] made.
pub fn open(closed: &Closed) -> Layers {
    let table = Exchange::netfilter().and_then(|kernel| kernel.ask(tables::remove())).map(drop);
    Layers { table, rules: change_rules(&places(closed), &users(closed), Change::Remove) }
}

/// Whether each is in place; an error if it is not, or the kernel does not say.
pub fn look(closed: &Closed) -> Layers {
    let places = places(closed);
    let whole = |found: usize, wanted: usize| {
        if found >= wanted { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
    };
    let table = Exchange::netfilter().and_then(|kernel| kernel.ask(tables::list()));
    let rules = Exchange::route().and_then(|kernel| {
        let mut found = 0;
        for request in rules::list() {
            found += kernel.ask(vec![request])?.iter().filter(|message| rules::prohibits(message)).count();
        }
        Ok(found)
    });
    Layers {
        table: table.and_then(|found| whole(found.len(), tables::rules_of(&places))),
        rules: rules.and_then(|found| whole(found, places.len())),
    }
}

/// Each address with each of its ports, or with None for all of it.
fn places(closed: &Closed) -> Vec<(IpAddr, Option<u16>)> {
    let addresses = closed.addresses.iter().filter_map(|one| Some((one.address.parse().ok()?, &one.tcp)));
    let ports = |(address, tcp): (IpAddr, &Vec<u16>)| -> Vec<(IpAddr, Option<u16>)> {
        if tcp.is_empty() { vec![(address, None)] } else { tcp.iter().map(|port| (address, Some(*port))).collect() }
    };
    addresses.flat_map(ports).collect()
}

fn users(closed: &Closed) -> Vec<u32> {
    std::iter::once(ROOT).chain(closed.users.iter().copied()).collect()
}

/// Adds or removes all rules. A kernel without IPv6 needs none for it.
fn change_rules(places: &[(IpAddr, Option<u16>)], users: &[u32], change: Change) -> io::Result<()> {
    let kernel = Exchange::route()?;
    let done = match change {
        Change::Add => EEXIST,
        Change::Remove => ENOENT,
    };
    for (address, port) in places {
        for message in rules::change(*address, *port, users, change) {
            match kernel.ask(vec![message]) {
                Err(e) if e.raw_os_error() == Some(done) => {}
                Err(e) if address.is_ipv6() && [Some(EAFNOSUPPORT), Some(EOPNOTSUPP)].contains(&e.raw_os_error()) => {}
                other => drop(other?),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::run_dir::ClosedAddress;

    #[test]
    fn address_without_ports_is_closed_whole() {
        let address = |address: &str, tcp: &[u16]| ClosedAddress { address: address.into(), tcp: tcp.to_vec() };
        let addresses = vec![address("10.0.0.1", &[80, 8080]), address("no address", &[]), address("fd00::1", &[])];
        let closed = Closed { addresses, users: vec![7] };
        let (four, six): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(places(&closed), [(four, Some(80)), (four, Some(8080)), (six, None)]);
        assert_eq!(users(&closed), [0, 7]);
    }
}
