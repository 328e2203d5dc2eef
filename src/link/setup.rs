//! Makes what the kernel command line asks for: bonds, bridges, VLANs, names.

use super::cmdline_net::{Made, Plan};
use super::ground::Ground;
use super::journal::Change;
use super::known::Known;
use super::netlink::{Kind, Netlink};
use super::rename;
use crate::base::error::{Context, Error, Result};

/// Makes all of `plan`'s links; what fails is logged and does not keep the rest.
pub async fn make(plan: &Plan, ground: &Ground) {
    for problem in &plan.problems {
        log::warn!("{problem}");
    }
    if let Err(e) = rename::by_mac(&plan.names, &ground.netlink).await {
        log::warn!("{e}");
    }
    for made in &plan.made {
        if let Err(e) = make_one(made, ground).await {
            log::warn!("{e}");
        }
    }
}

async fn make_one(made: &Made, ground: &Ground) -> Result<()> {
    let (name, kind) = match made {
        Made::Bond { name, .. } => (name, Kind::Bond),
        Made::Bridge { name, .. } => (name, Kind::Bridge),
        Made::Vlan { name, parent, id } => {
            let parent = found(&ground.known, &ground.netlink, parent).await?;
            (name, Kind::Vlan { parent, id: *id })
        }
    };
    let there = ground.known.named(name).is_some();
    if !there {
        ground.netlink.make(name, kind).await.context(|| format!("failed to make the link {name}"))?;
    }
    let index = found(&ground.known, &ground.netlink, name).await?;
    if !there {
        ground.note(Change::Made { index });
    }
    ground.allow(index);
    match made {
        Made::Bond { name, ports, options, mtu } => {
            for (option, value) in options {
                let path = ground.sys.join("class/net").join(name).join("bonding").join(option);
                std::fs::write(&path, value)
                    .context(|| format!("failed to set {option}={value} of the bond {name}"))?;
            }
            if let Some(mtu) = mtu {
                ground.set_mtu(index, *mtu).await;
            }
            add_ports(ports, index, name, false, ground).await
        }
        Made::Bridge { name, ports } => add_ports(ports, index, name, true, ground).await,
        Made::Vlan { parent, .. } => {
            // A VLAN has carrier only while its parent is up.
            let parent = found(&ground.known, &ground.netlink, parent).await?;
            ground.set_up(parent).await
        }
    }
}

async fn add_ports(ports: &[String], controller: u32, name: &str, up: bool, ground: &Ground) -> Result<()> {
    for port in ports {
        let index = found(&ground.known, &ground.netlink, port).await?;
        let link = ground.known.links().into_iter().find(|l| l.index == index);
        if link.is_none_or(|l| l.enslaved || l.up) || ground.known.addressed(index) {
            return Err(Error::new(format!("{port} is in use; it is not made a part of {name}")));
        }
        let change = Change::Port { index };
        ground.note(change.clone());
        if let Err(e) = ground.netlink.set_controller(index, controller).await {
            ground.forget(&change);
            return Err(Error::new(format!("failed to make {port} a part of {name}: {e}")));
        }
        if up {
            ground.set_up(index).await?;
        }
    }
    Ok(())
}

/// The index of a link by name, read anew: it may be younger than the last event.
async fn found(known: &Known, netlink: &Netlink, name: &str) -> Result<u32> {
    if let Some(link) = known.named(name) {
        return Ok(link.index);
    }
    let links = netlink.links().await?;
    let link = links.into_iter().find(|l| l.name == name);
    link.map(|l| l.index).ok_or_else(|| Error::new(format!("there is no network link {name}")))
}
