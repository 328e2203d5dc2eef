//! Gives links their names by netlink, swaps and longer cycles included.
//!
//! Linux renames a link only while it is down (and, since 6.2, while it is up); a link that carries addresses is never
//! taken down for it. Whatever fails, every link keeps a name that somebody gave it: no temporary one is left behind.

use super::netlink::{Link, Netlink};
use crate::error::{Error, Result};

/// The name, for the moment, of a link whose own is wanted by another; `N` counts up to a free one.
const TEMPORARY: &str = "prepivot";

/// Gives the link with each hardware address the name beside it. All or nothing: at the first failure the names so far
/// are given back. Links of software that share their hardware address with a device (a bond, a VLAN) are not meant.
///
/// Errors: no such device, two devices with one address, a name twice or held by a link that keeps it, the kernel's refusal.
pub fn rename(wanted: &[([u8; 6], String)]) -> Result<()> {
    use crate::error::Context;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "failed to start the network runtime")?.block_on(async {
        let (netlink, _events) = Netlink::open()?;
        by_mac(wanted, &netlink).await
    })
}

/// [`rename`] by an open connection.
pub async fn by_mac(wanted: &[([u8; 6], String)], netlink: &Netlink) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let links = netlink.links().await?;
    let steps = plan(wanted, &links)?;
    let downs = take_down(&steps, &links, netlink).await?;
    let mut done: Vec<&Step> = Vec::new();
    let mut outcome = Ok(());
    for step in &steps {
        if let Err(e) = netlink.rename(step.index, &step.to).await {
            outcome = Err(Error::new(format!("failed to rename the link {} to {}: {e}", step.from, step.to)));
            break;
        }
        done.push(step);
    }
    if outcome.is_err() {
        for step in done.into_iter().rev() {
            if let Err(e) = netlink.rename(step.index, &step.from).await {
                log::warn!("failed to give the link {} its name {} back: {e}", step.to, step.from);
            }
        }
    }
    for index in downs {
        if let Err(e) = netlink.set_up(index, true).await {
            log::warn!("failed to set a renamed link up again: {e}");
        }
    }
    outcome
}

#[derive(Debug, PartialEq, Eq)]
struct Step {
    index: u32,
    from: String,
    to: String,
}

/// Takes down the links that are up without an address; gives those.
async fn take_down(steps: &[Step], links: &[Link], netlink: &Netlink) -> Result<Vec<u32>> {
    let addresses = netlink.addresses().await?;
    let mut downs = Vec::new();
    for link in links.iter().filter(|l| l.up && steps.iter().any(|s| s.index == l.index)) {
        let own = |ip: std::net::IpAddr| matches!(ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
        // With addresses it stays up: a kernel that renames live links will do it, another says why not.
        if addresses.iter().all(|a| a.index != link.index || own(a.address))
            && netlink.set_up(link.index, false).await.is_ok()
        {
            downs.push(link.index);
        }
    }
    Ok(downs)
}

/// The renames in an order in which every name is free when its turn comes.
fn plan(wanted: &[([u8; 6], String)], links: &[Link]) -> Result<Vec<Step>> {
    let mut moves = Vec::new();
    for (mac, to) in wanted {
        let mut with: Vec<&Link> = links.iter().filter(|l| l.mac == Some(*mac)).collect();
        // A bond's ports and a VLAN share an address; the device is what the address was burnt into.
        if with.len() > 1 {
            with.retain(|l| !l.software);
        }
        let text = mac.map(|o| format!("{o:02x}")).join(":");
        let link = match with.as_slice() {
            [link] => *link,
            [] => return Err(Error::new(format!("no network link has the address {text} that is to be {to}"))),
            _ => return Err(Error::new(format!("several network links have the address {text} that is to be {to}"))),
        };
        if moves.iter().any(|m: &Step| m.to == *to || m.index == link.index) {
            return Err(Error::new(format!("the link name {to} or the address {text} is asked for twice")));
        }
        moves.push(Step { index: link.index, from: link.name.clone(), to: to.clone() });
    }
    moves.retain(|m| m.from != m.to);
    for step in &moves {
        let holder = links.iter().find(|l| l.name == step.to && !moves.iter().any(|m| m.index == l.index));
        if holder.is_some() {
            return Err(Error::new(format!(
                "the link {} is to be {}, which is another link's name",
                step.from, step.to
            )));
        }
    }
    let mut steps = Vec::new();
    while !moves.is_empty() {
        let free = moves.iter().position(|m| !moves.iter().any(|other| other.from == m.to));
        if let Some(at) = free {
            steps.push(moves.remove(at));
            continue;
        }
        // Only cycles are left: one link steps aside.
        let Some(first) = moves.first_mut() else { break };
        let taken = |name: &str| links.iter().any(|l| l.name == name) || wanted.iter().any(|(_, to)| to == name);
        let aside = (0..)
            .map(|n| format!("{TEMPORARY}{n}"))
            .find(|name| !taken(name) && !steps.iter().any(|s: &Step| s.to == *name));
        let aside = aside.unwrap_or_default();
        steps.push(Step { index: first.index, from: std::mem::replace(&mut first.from, aside.clone()), to: aside });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(names: &[&str]) -> Vec<Link> {
        let link = |(i, name): (usize, &&str)| Link {
            index: i as u32 + 1,
            name: (*name).into(),
            mac: Some([2, 0, 0, 0, 0, i as u8 + 1]),
            ethernet: true,
            up: false,
            carrier: false,
            enslaved: false,
            software: false,
            mtu: 1500,
        };
        names.iter().enumerate().map(link).collect()
    }

    /// Plays the steps; every name must be free at its turn.
    fn play(names: &[&str], wanted: &[(u8, &str)]) -> Result<Vec<String>> {
        let links = links(names);
        let wanted: Vec<_> = wanted.iter().map(|(n, to)| ([2, 0, 0, 0, 0, *n], (*to).to_owned())).collect();
        let mut now: Vec<String> = names.iter().map(|n| (*n).into()).collect();
        for step in plan(&wanted, &links)? {
            assert!(!now.contains(&step.to), "{} is taken", step.to);
            assert_eq!(now[step.index as usize - 1], step.from);
            now[step.index as usize - 1] = step.to;
        }
        assert!(!now.iter().any(|n| n.starts_with(TEMPORARY)));
        Ok(now)
    }

    #[test]
    fn chains_swaps_and_cycles() {
        assert_eq!(play(&["eth0", "eth1"], &[(1, "eth1"), (2, "eth0")]).unwrap(), ["eth1", "eth0"]);
        assert_eq!(
            play(&["a", "b", "c", "d", "e"], &[(1, "b"), (2, "c"), (3, "a"), (4, "e"), (5, "d")]).unwrap(),
            ["b", "c", "a", "e", "d"]
        );
        assert_eq!(play(&["a", "b", "c"], &[(1, "b"), (2, "c"), (3, "x")]).unwrap(), ["b", "c", "x"]);
        assert_eq!(play(&["a", "b"], &[(1, "a")]).unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_done_is_said_before_anything_is() {
        for (wanted, why) in [
            (vec![(9, "x")], "no network link"),
            (vec![(1, "b")], "another link's name"),
            (vec![(1, "x"), (2, "x")], "twice"),
        ] {
            let error = play(&["a", "b"], &wanted).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
