//! Creates what the kernel command line asks for: bonds, bridges, VLANs and names.

use super::cmdline_net::{LinkPlan, Made};
use super::journal::Change;
use super::link_table::LinkTable;
use super::netlink::{Kind, Netlink};
use super::rename;
use super::task::TaskContext;
use crate::base::error::{Context, Error, Result};

/// Creates all links of `plan`. A failure is logged and does not stop the rest.
pub async fn make(plan: &LinkPlan, context: &TaskContext) {
    for problem in plan.problems.entries() {
        log::warn!("{problem}");
    }
    if let Err(e) = rename::by_mac(&plan.names, &context.netlink).await {
        log::warn!("{e}");
    }
    for made in &plan.made {
        if let Err(e) = make_one(made, context).await {
            log::warn!("{e}");
        }
    }
}

async fn make_one(made: &Made, context: &TaskContext) -> Result<()> {
    let (name, kind) = match made {
        Made::Bond { name, .. } => (name, Kind::Bond),
        Made::Bridge { name, .. } => (name, Kind::Bridge),
        Made::Vlan { name, parent, id } => {
            let parent = found(&context.links, &context.netlink, parent).await?;
            (name, Kind::Vlan { parent, id: *id })
        }
    };
    let there = context.links.named(name);
    if there.as_ref().is_some_and(|link| link.up) {
        log::debug!("{name}: left alone: another program has made it and set it up");
        return Ok(());
    }
    let there = there.is_some();
    if !there {
        context.netlink.make(name, kind).await.context(|| format!("failed to make the link {name}"))?;
    }
    let index = found(&context.links, &context.netlink, name).await?;
    if !there {
        context.note(Change::Made { index });
    }
    context.allow(index);
    match made {
        Made::Bond { name, ports, options, mtu } => {
            for (option, value) in options {
                let path = context.sys.join("class/net").join(name).join("bonding").join(option);
                std::fs::write(&path, value)
                    .context(|| format!("failed to set {option}={value} of the bond {name}"))?;
            }
            if let Some(mtu) = mtu {
                context.set_mtu(index, *mtu).await;
            }
            add_ports(ports, index, name, false, context).await
        }
        Made::Bridge { name, ports } => add_ports(ports, index, name, true, context).await,
        Made::Vlan { parent, .. } => {
            // A VLAN has carrier only while its parent is up.
            let parent = found(&context.links, &context.netlink, parent).await?;
            context.set_up(parent).await
        }
    }
}

async fn add_ports(ports: &[String], controller: u32, name: &str, up: bool, context: &TaskContext) -> Result<()> {
    for port in ports {
        let index = found(&context.links, &context.netlink, port).await?;
        let link = context.links.links().into_iter().find(|l| l.index == index);
        if link.is_none_or(|l| l.enslaved || l.up) || context.links.has_address(index) {
            return Err(Error::new(format!("{port} is in use; it is not made a part of {name}")));
        }
        let change = Change::Port { index };
        context.note(change.clone());
        if let Err(e) = context.netlink.set_controller(index, controller).await {
            context.forget(&change);
            return Err(Error::new(format!("failed to make {port} a part of {name}: {e}")));
        }
        if up {
            context.set_up(index).await?;
        }
    }
    Ok(())
}

/// The index of the link with this name, read from the kernel: it may be newer than the last event.
async fn found(links: &LinkTable, netlink: &Netlink, name: &str) -> Result<u32> {
    if let Some(link) = links.named(name) {
        return Ok(link.index);
    }
    let links = netlink.links().await?;
    let link = links.into_iter().find(|l| l.name == name);
    link.map(|l| l.index).ok_or_else(|| Error::new(format!("there is no network link {name}")))
}
