//! Policy rules (ip-rule(8)): which route lookups of users fail.
//!
//! Three steps before any other rule: lookups of the users who may reach an address skip the second, which prohibits all others. What
//! they skip to has no effect, so that their lookups go on with the rules of the system.

use super::message::Message;
use super::write::{TCP, family, octets, text};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::rule::{RuleAction, RuleHeader};
use std::net::IpAddr;

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;

/// Attributes (linux/fib_rules.h).
const DESTINATION: u16 = 1;
const INPUT: u16 = 3;
const GOTO: u16 = 4;
const PRIORITY: u16 = 6;
const USERS: u16 = 20;
const PROTOCOL: u16 = 21;
const IP_PROTOCOL: u16 = 22;
const PORTS: u16 = 24;

/// The priorities of the steps, after that of the table `local`, which is 0.
const SKIP: u32 = 1;
const PROHIBIT: u32 = 2;
const END: u32 = 3;
/// The kernel's own rules: systemd-networkd leaves these alone (`ManageForeignRoutingPolicyRules=`).
const KERNEL: u8 = 2;

/// Whether rules are added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Add,
    Remove,
}

/// The messages that prohibit an address, with a port or all of it, to all users but `users`, one by one. The kernel refuses to
/// add what is there, and to remove what is not.
pub fn change(address: IpAddr, port: Option<u16>, users: &[u32], change: Change) -> Vec<(Message, u16)> {
    let to = |step, action| {
        let message = rule(address, step, action, change);
        let message = message.with(DESTINATION, &octets(address));
        match port {
            None => message,
            Some(port) => message.with(IP_PROTOCOL, &[TCP]).with(PORTS, &[port.to_ne_bytes(); 2].concat()),
        }
    };
    let skip = |user: &u32| {
        let message = to(SKIP, RuleAction::Goto).with(GOTO, &END.to_ne_bytes());
        // What is forwarded has root's number, and comes from another device.
        message.with(INPUT, &text("lo")).with(USERS, &[user.to_ne_bytes(); 2].concat())
    };
    let end = rule(address, END, RuleAction::Nop, change);
    let prohibit = to(PROHIBIT, RuleAction::Prohibit);
    let flags = if change == Change::Add { NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL } else { NLM_F_ACK };
    let mut messages: Vec<_> = [end].into_iter().chain(users.iter().map(skip)).chain([prohibit]).collect();
    if change == Change::Remove {
        messages.reverse();
    }
    messages.into_iter().map(|message| (message, flags)).collect()
}

/// Asks for the rules of both versions of IP.
pub fn list() -> [(Message, u16); 2] {
    [AddressFamily::Inet, AddressFamily::Inet6]
        .map(|family| (Message::new(RTM_GETRULE, &RuleHeader { family, ..Default::default() }), NLM_F_DUMP))
}

/// Whether an answer to [`list`] is a rule of ours that prohibits something.
pub fn prohibits(message: &Message) -> bool {
    let value = |kind| message.attributes(&RuleHeader::default()).find(|(own, _)| *own == kind).map(|(_, value)| value);
    value(PRIORITY) == Some(&PROHIBIT.to_ne_bytes()) && value(PROTOCOL) == Some(&[KERNEL])
}

/// A rule of the family of `address`, without conditions.
fn rule(address: IpAddr, step: u32, action: RuleAction, change: Change) -> Message {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let dst_len = if step == END { 0 } else { bits };
    let header = RuleHeader { family: family(address), dst_len, action, ..Default::default() };
    let kind = if change == Change::Add { RTM_NEWRULE } else { RTM_DELRULE };
    Message::new(kind, &header).with(PRIORITY, &step.to_ne_bytes()).with(PROTOCOL, &[KERNEL])
}
