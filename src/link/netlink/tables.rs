//! nf_tables: one table of ours that keeps users from services (linux/netfilter/nf_tables.h, nfnetlink.h).
//!
//! A table has chains, which are called for each packet at a hook, and a chain has rules, which are lists of expressions. An
//! expression loads a value into a register or compares one; where a comparison fails, the rule ends. Numbers are in network
//! byte order, except in what is compared with a value of the kernel's own.

use super::message::{Message, nested};
use super::write::{TCP, octets, text};
use rtnetlink::packet_core::{Emitable, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP};
use std::net::IpAddr;

/// The table's name, of the family inet: `nft list table inet prepivot`.
pub const NAME: &str = "prepivot";

/// NFNL_SUBSYS_NFTABLES, in the upper half of a message's type.
const NF_TABLES: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = NF_TABLES << 8;
const DELETE_TABLE: u16 = NF_TABLES << 8 | 2;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const GET_RULE: u16 = NF_TABLES << 8 | 7;

/// NFPROTO_INET: both versions of IP.
const INET: u8 = 1;
/// The flag of a nested attribute (linux/netlink.h).
const NESTED: u16 = 0x8000;

/// A chain: its name and its hook (NF_INET_FORWARD, NF_INET_LOCAL_OUT).
type Chain = (&'static str, u32);
const OUTPUT: Chain = ("output", 3);
const FORWARD: Chain = ("forward", 2);

/// NFT_META_SKUID, NFT_META_NFPROTO, NFT_META_L4PROTO.
const META_UID: u32 = 10;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
/// NFT_PAYLOAD_NETWORK_HEADER, NFT_PAYLOAD_TRANSPORT_HEADER.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// NFT_CMP_EQ, NFT_CMP_NEQ.
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;

/// nfgenmsg: the family, the version, and for a batch the subsystem.
struct Header {
    family: u8,
    subsystem: u16,
}

impl Emitable for Header {
    fn buffer_len(&self) -> usize {
        4
    }

    fn emit(&self, buffer: &mut [u8]) {
        let [high, low] = self.subsystem.to_be_bytes();
        buffer.copy_from_slice(&[self.family, 0, high, low]);
    }
}

/// Puts the table in place of one that is there, in one transaction: an address with a port, or None for all of it, is closed to
/// all users but `users`, and to what is forwarded.
pub fn set(closed: &[(IpAddr, Option<u16>)], users: &[u32]) -> Vec<(Message, u16)> {
    // It is made before it is deleted, because one that is not there cannot be.
    let mut changes = vec![table(NEW_TABLE), table(DELETE_TABLE), table(NEW_TABLE), chain(OUTPUT), chain(FORWARD)];
    for (address, port) in closed {
        changes.push(rule(OUTPUT, [destination(*address, *port), foreign(users)].concat()));
        changes.push(rule(FORWARD, destination(*address, *port)));
    }
    batch(changes)
}

/// Removes the table, if it is there.
pub fn remove() -> Vec<(Message, u16)> {
    batch(vec![table(NEW_TABLE), table(DELETE_TABLE)])
}

/// Asks for the table's rules, each of which is an answer; none if there is no table.
pub fn list() -> Vec<(Message, u16)> {
    vec![(table(GET_RULE), NLM_F_DUMP)]
}

/// How many rules [`set`] makes.
pub fn rules_of(closed: &[(IpAddr, Option<u16>)]) -> usize {
    closed.len() * 2
}

/// A transaction. The kernel acknowledges the last change of it.
fn batch(changes: Vec<Message>) -> Vec<(Message, u16)> {
    let mark = |kind| (Message::new(kind, &Header { family: 0, subsystem: NF_TABLES }), 0);
    let last = changes.len().saturating_sub(1);
    let flags = |at| NLM_F_CREATE | NLM_F_APPEND | if at == last { NLM_F_ACK } else { 0 };
    let changes = changes.into_iter().enumerate().map(|(at, change)| (change, flags(at)));
    std::iter::once(mark(BATCH_BEGIN)).chain(changes).chain([mark(BATCH_END)]).collect()
}

/// A message about the table: its name is the first attribute of all of them.
fn table(kind: u16) -> Message {
    Message::new(kind, &Header { family: INET, subsystem: 0 }).with(1, &text(NAME))
}

/// Adds a chain, which accepts what no rule drops: after destinations are translated, as packet filters do.
fn chain((name, hook): Chain) -> Message {
    let hook = nested(&[(1, &hook.to_be_bytes()), (2, &0u32.to_be_bytes())]);
    // NFTA_CHAIN_NAME, _HOOK, _POLICY (NF_ACCEPT), _TYPE.
    let message = table(NEW_CHAIN).with(3, &text(name)).with(4 | NESTED, &hook);
    message.with(5, &1u32.to_be_bytes()).with(7, &text("filter"))
}

/// Adds a rule that drops what its expressions apply to.
fn rule((chain, _): Chain, mut expressions: Vec<Vec<u8>>) -> Message {
    // NFT_REG_VERDICT, and NF_DROP as NFTA_DATA_VERDICT.
    let verdict = nested(&[(2 | NESTED, &nested(&[(1, &0u32.to_be_bytes())]))]);
    expressions.push(expression("immediate", &[(1, &0u32.to_be_bytes()), (2 | NESTED, &verdict)]));
    let elements: Vec<(u16, &[u8])> = expressions.iter().map(|one| (1 | NESTED, one.as_slice())).collect();
    table(NEW_RULE).with(2, &text(chain)).with(4 | NESTED, &nested(&elements))
}

/// The expressions for packets to an address, and to a port of TCP if there is one.
fn destination(address: IpAddr, port: Option<u16>) -> Vec<Vec<u8>> {
    // NFPROTO_IPV4 and _IPV6, and where their headers have the destination.
    let (family, offset, length) = if address.is_ipv4() { (2, 16, 4) } else { (10, 24, 16) };
    let to = [payload(NETWORK, offset, length), compare(EQUAL, &octets(address))];
    let address = [meta(META_FAMILY), compare(EQUAL, &[family])].into_iter().chain(to);
    let port = port.map(|port| {
        [meta(META_PROTOCOL), compare(EQUAL, &[TCP]), payload(TRANSPORT, 2, 2), compare(EQUAL, &port.to_be_bytes())]
    });
    address.chain(port.into_iter().flatten()).collect()
}

/// The expressions for packets whose socket is of none of these users. One without a socket is the kernel's own.
fn foreign(users: &[u32]) -> Vec<Vec<u8>> {
    let others = users.iter().map(|user| compare(DIFFERENT, &user.to_ne_bytes()));
    std::iter::once(meta(META_UID)).chain(others).collect()
}

/// Loads something about the packet into the first register.
fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[(1, &1u32.to_be_bytes()), (2, &key.to_be_bytes())])
}

/// Loads bytes of a header into the first register.
fn payload(base: u32, offset: u32, length: u32) -> Vec<u8> {
    let numbers = [1, base, offset, length].map(u32::to_be_bytes);
    let attributes: Vec<(u16, &[u8])> = (1..).zip(&numbers).map(|(kind, number)| (kind, number.as_slice())).collect();
    expression("payload", &attributes)
}

/// Compares the first register.
fn compare(how: u32, value: &[u8]) -> Vec<u8> {
    let value = nested(&[(1, value)]);
    expression("cmp", &[(1, &1u32.to_be_bytes()), (2, &how.to_be_bytes()), (3 | NESTED, &value)])
}

/// NFTA_EXPR_NAME and NFTA_EXPR_DATA.
fn expression(name: &str, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    nested(&[(1, &text(name)), (2 | NESTED, &nested(attributes))])
}
