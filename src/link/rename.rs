//! Renames links by netlink, including swaps and longer cycles.
//!
//! Only unused links are renamed: down, without an address, not part of another. If something fails, no link
//! is left with a temporary name.

use super::netlink::{Link, Netlink};
use crate::base::error::{Context, Error, Result};
use crate::machine::nic::is_name;

/// The temporary name of a link whose own name another one needs; `N` is the first free number.
const TEMPORARY: &str = "prepivot";

/// A link's current name, and the name that it is to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    pub from: String,
    pub to: String,
}

/// Renames links. Those in use keep their names, and so do links whose new name is one of these; both are logged. The
/// others are all renamed or none: at the first failure, earlier renames are undone.
///
/// # Errors
/// There is no netlink, or the kernel refuses.
pub fn rename(wanted: &[Rename]) -> Result<()> {
    if wanted.iter().all(|w| w.from == w.to) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "failed to start the network runtime")?.block_on(async {
        let (netlink, _events) = Netlink::open()?;
        let links = netlink.links().await?;
        by_name(wanted, &links, &netlink).await
    })
}

/// [`rename`] by hardware address, over an open connection. Virtual links that share their address with a
/// device (a bond, a VLAN) are not renamed.
pub async fn by_mac(wanted: &[([u8; 6], String)], netlink: &Netlink) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let links = netlink.links().await?;
    let mut renames = Vec::new();
    for (mac, to) in wanted {
        let mut with: Vec<&Link> = links.iter().filter(|l| l.mac == Some(*mac)).collect();
        if with.len() > 1 {
            with.retain(|l| !l.software);
        }
        match with.as_slice() {
            [link] => renames.push(Rename { from: link.name.clone(), to: to.clone() }),
            found => {
                let text = mac.map(|o| format!("{o:02x}")).join(":");
                let count = if found.is_empty() { "no network link has" } else { "several network links have" };
                log::warn!("{count} the address {text} that is to be {to}");
            }
        }
    }
    by_name(&renames, &links, netlink).await
}

async fn by_name(wanted: &[Rename], links: &[Link], netlink: &Netlink) -> Result<()> {
    let addresses = netlink.addresses().await?;
    let addressed = |index| addresses.iter().any(|a| a.index == index);
    let Plan { steps, kept } = plan(wanted, links, addressed);
    for Kept { from, to, why } in kept {
        log::info!("{from} is not renamed to {to}: {why}");
    }
    for (done, step) in steps.iter().enumerate() {
        if let Err(e) = take(step, netlink).await {
            for step in steps.iter().take(done).rev() {
                give_back(step, netlink).await;
            }
            return Err(Error::new(format!("failed to rename the link {} to {}: {e}", step.from, step.to)));
        }
    }
    for step in steps.iter().filter(|s| !is_temporary(&s.to)) {
        log::info!("the link {} is {} now", step.first, step.to);
    }
    Ok(())
}

fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

async fn take(step: &Step, netlink: &Netlink) -> std::io::Result<()> {
    if step.alternative {
        netlink.alternative_name(step.index, &step.to, false).await?;
    }
    let renamed = netlink.rename(step.index, &step.to).await;
    if renamed.is_err() && step.alternative {
        // The alternative name existed before; without it, the link still has its name.
        let _ = netlink.alternative_name(step.index, &step.to, true).await;
    }
    renamed
}

async fn give_back(step: &Step, netlink: &Netlink) {
    let mut given = netlink.rename(step.index, &step.from).await;
    if given.is_err() && netlink.set_up(step.index, false).await.is_ok() {
        // Another program set it up in between, and most kernels only rename links that are down.
        given = netlink.rename(step.index, &step.from).await;
        let _ = netlink.set_up(step.index, true).await;
    }
    if given.is_ok() && step.alternative {
        given = netlink.alternative_name(step.index, &step.to, true).await;
    }
    if let Err(e) = given {
        log::warn!("failed to give the link {} its name {} back: {e}", step.to, step.from);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Step {
    index: u32,
    /// The link's name before all steps.
    first: String,
    from: String,
    to: String,
    /// Whether `to` is an alternative name of the same link (systemd-udevd sets some), which has to be
    /// removed first.
    alternative: bool,
}

/// A link that keeps its name, and the reason.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    from: String,
    to: String,
    why: String,
}

#[derive(Debug, Default)]
struct Plan {
    steps: Vec<Step>,
    kept: Vec<Kept>,
}

/// The renames in an order in which every name is free when it is needed.
fn plan(wanted: &[Rename], links: &[Link], addressed: impl Fn(u32) -> bool) -> Plan {
    let mut plan = Plan::default();
    let mut moves: Vec<Step> = Vec::new();
    for Rename { from, to } in wanted.iter().filter(|w| w.from != w.to) {
        let mut keep = |why: &str| plan.kept.push(Kept { from: from.clone(), to: to.clone(), why: why.to_owned() });
        let Some(link) = links.iter().find(|l| l.name == *from) else {
            keep("there is no such link");
            continue;
        };
        match () {
            () if !is_name(to) => keep("no link can have that name"),
            () if moves.iter().any(|m| m.to == *to || m.index == link.index) => keep("it is asked for twice"),
            () if link.enslaved => keep("it is part of another link"),
            () if link.up => keep("it is up"),
            () if addressed(link.index) => keep("it has an address"),
            () => moves.push(Step {
                index: link.index,
                first: from.clone(),
                from: from.clone(),
                to: to.clone(),
                alternative: link.alternatives.contains(to),
            }),
        }
    }
    // A link that stays may have a name that another waits for; then that one stays as well.
    while let Some(at) = moves.iter().position(|m| holder(m, &moves, links).is_some()) {
        let step = moves.remove(at);
        let why = format!("another link is called {}", step.to);
        plan.kept.push(Kept { from: step.from, to: step.to, why });
    }
    while !moves.is_empty() {
        if let Some(at) = moves.iter().position(|m| !moves.iter().any(|other| other.from == m.to)) {
            plan.steps.push(moves.remove(at));
            continue;
        }
        // Only cycles are left: one link gets a temporary name.
        let Some(step) = moves.first_mut() else { break };
        let taken = |name: &str| {
            links.iter().any(|l| l.name == name || l.alternatives.iter().any(|a| a == name))
                || wanted.iter().any(|w| w.to == name)
                || plan.steps.iter().any(|s| s.to == name)
        };
        let aside = (0..).map(|n| format!("{TEMPORARY}{n}")).find(|name| !taken(name)).unwrap_or_default();
        let from = std::mem::replace(&mut step.from, aside.clone());
        let first = step.first.clone();
        plan.steps.push(Step { index: step.index, first, from, to: aside, alternative: false });
    }
    plan
}

/// The link that has a rename's new name and keeps it.
fn holder<'a>(step: &Step, moves: &[Step], links: &'a [Link]) -> Option<&'a Link> {
    links.iter().filter(|l| l.index != step.index).find(|l| {
        let moves_on = moves.iter().any(|m| m.index == l.index);
        (l.name == step.to && !moves_on) || l.alternatives.contains(&step.to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(names: &[&str]) -> Vec<Link> {
        let link = |(i, name): (usize, &&str)| Link::idle(i as u32 + 1, name, i as u8 + 1);
        names.iter().enumerate().map(link).collect()
    }

    fn wishes(wanted: &[(&str, &str)]) -> Vec<Rename> {
        wanted.iter().map(|(from, to)| Rename { from: (*from).into(), to: (*to).into() }).collect()
    }

    /// Plays the steps; every name must be free at its turn. Gives the names, and why links keep theirs.
    fn play(links: &[Link], wanted: &[(&str, &str)]) -> (String, String) {
        let mut now: Vec<String> = links.iter().map(|l| l.name.clone()).collect();
        let plan = plan(&wishes(wanted), links, |index| index == 9);
        for step in plan.steps {
            assert!(!now.contains(&step.to), "{} is taken", step.to);
            let at = links.iter().position(|l| l.index == step.index).unwrap();
            assert_eq!(now[at], step.from);
            now[at] = step.to;
        }
        assert!(!now.iter().any(|n| is_temporary(n)), "{now:?}");
        let kept: Vec<String> = plan.kept.iter().map(|k| format!("{}: {}", k.from, k.why)).collect();
        (now.join(" "), kept.join("; "))
    }

    #[test]
    fn chains_swaps_and_cycles() {
        let names = |present: &[&str], wanted: &[(&str, &str)]| {
            let (names, kept) = play(&links(present), wanted);
            assert_eq!(kept, "");
            names
        };
        assert_eq!(names(&["eth0", "eth1"], &[("eth0", "eth1"), ("eth1", "eth0")]), "eth1 eth0");
        let two_cycles = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("e", "d")];
        assert_eq!(names(&["a", "b", "c", "d", "e"], &two_cycles), "b c a e d");
        assert_eq!(names(&["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "x")]), "b c x");
        assert_eq!(names(&["a", "b"], &[("a", "a")]), "a b");
        assert_eq!(names(&["prepivot0", "b"], &[("prepivot0", "b"), ("b", "lan")]), "b lan");
    }

    #[test]
    fn links_in_use_and_their_dependents_keep_names() {
        let all = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "x")];
        let mut busy = links(&["a", "b", "c", "d"]);
        busy[1].up = true;
        let (names, kept) = play(&busy, &all);
        assert_eq!(names, "a b c x");
        assert_eq!(kept, "b: it is up; a: another link is called b; c: another link is called a");
        let mut part = links(&["a", "b", "c"]);
        part[0].enslaved = true;
        part[1].index = 9;
        let (names, kept) = play(&part, &[("a", "x"), ("b", "y"), ("c", "z"), ("gone", "w"), ("c", "v")]);
        assert_eq!(names, "a b z");
        assert_eq!(
            kept,
            "a: it is part of another link; b: it has an address; gone: there is no such link; c: it is asked for twice"
        );
    }

    #[test]
    fn names_that_the_kernel_takes() {
        assert!(is_name("eth0") && is_name("a.5@x") && is_name(&"n".repeat(15)));
        for wrong in ["", ".", "..", "a b", "a/b", "a:b", "eth%d", "a\n", &"n".repeat(16)] {
            assert!(!is_name(wrong), "{wrong}");
            let (names, kept) = play(&links(&["a", "b"]), &[("a", wrong), ("b", "c")]);
            assert_eq!((names.as_str(), kept.as_str()), ("a c", "a: no link can have that name"));
        }
    }

    #[test]
    fn alternative_names() {
        let mut links = links(&["ens3", "ens4"]);
        links[0].alternatives = vec!["enp0s3".into()];
        let steps = plan(&wishes(&[("ens3", "enp0s3")]), &links, |_| false).steps;
        assert!(steps[0].alternative);
        let (names, kept) = play(&links, &[("ens4", "enp0s3")]);
        assert_eq!((names.as_str(), kept.as_str()), ("ens3 ens4", "ens4: another link is called enp0s3"));
    }
}
