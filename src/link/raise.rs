//! Brings one link from down to ready: carrier, then IPv4 and IPv6 at the same time.

use super::arp;
use super::cmdline_net::{Ip, LinkPlan, Method};
use super::dhcp::{Client, Lease, LeaseRoute};
use super::netlink::{Address, Link, Route};
use super::task::{TaskContext, TaskEvent};
use super::uplink::{Reach, Uplink};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The metadata service's address on nearly every cloud.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// How long to wait for carrier: negotiation takes seconds.
const CARRIER_WAIT: Duration = Duration::from_secs(30);
/// How long DHCP has before a link-local address is tried as well.
const FALLBACK_AFTER: Duration = Duration::from_secs(4);
/// How long to wait for the link-local IPv6 address, and then for a router: three solicitations, 4 s apart
/// (RFC 4861).
const V6_WAIT: Duration = Duration::from_secs(5);
const ROUTER_WAIT: Duration = Duration::from_secs(13);
/// How long to wait for an address once there is a router: duplicate address detection takes a second (RFC 4862).
const ADDRESS_WAIT: Duration = Duration::from_secs(2);
/// The metric of added routes, larger than any other; the link's index is added because two links may lead to
/// the same network.
const METRIC: u32 = 0x10000;

/// Raises a link that is down, and reports each uplink to the session.
pub async fn link(link: Link, plan: LinkPlan, context: TaskContext, deadline: Deadline) {
    if let Err(e) = raise(&link, &plan, &context, deadline).await {
        let [four, others @ ..] = Reach::ALL;
        context.report(TaskEvent::Ended(link.index, four, Some(named(&link, e))));
        others.into_iter().for_each(|reach| context.report(TaskEvent::Ended(link.index, reach, None)));
    }
}

/// Watches a link that another program configures, and reports the uplinks that it has or gets.
pub async fn watch(link: Link, context: TaskContext, deadline: Deadline) {
    let deadline = deadline.at_most(CARRIER_WAIT);
    let four = async {
        if within(deadline, context.links.wait_until(|l| l.has_global_ipv4(link.index))).await {
            context.report(TaskEvent::Uplink(uplink(&link, Reach::Ipv4).into()));
        }
        context.report(TaskEvent::Ended(link.index, Reach::Ipv4, None));
    };
    both(four, ipv6(&link, Vec::new(), &context, deadline)).await;
}

async fn raise(link: &Link, plan: &LinkPlan, context: &TaskContext, deadline: Deadline) -> Result<()> {
    let ip = plan.for_link(&link.name);
    let mut link = link.clone();
    if let Some(mac) = ip.and_then(|ip| ip.mac) {
        context.set_mac(link.index, mac).await;
        link.mac = Some(mac);
    }
    if let Some(mtu) = ip.and_then(|ip| ip.mtu) {
        context.set_mtu(link.index, mtu).await;
    }
    context.set_up(link.index).await?;
    let patience = deadline.at_most(CARRIER_WAIT);
    let asked = patience.left();
    if !within(patience, context.links.wait_until(|l| l.has_carrier(link.index))).await {
        return Err(Error::new(format!("no carrier in {} s: is a cable plugged in?", asked.as_secs_f32().round())));
    }
    let four = async {
        let failed = ipv4(&link, plan, ip, context, deadline).await.err();
        context.report(TaskEvent::Ended(link.index, Reach::Ipv4, failed.map(|e| named(&link, e))));
    };
    if plan.pin.leases_only() {
        four.await;
        context.report(TaskEvent::Ended(link.index, Reach::Ipv6LinkLocal, None));
        context.report(TaskEvent::Ended(link.index, Reach::Ipv6Routed, None));
    } else {
        both(four, ipv6(&link, plan.name_servers(ip), context, deadline)).await;
    }
    Ok(())
}

async fn ipv4(link: &Link, plan: &LinkPlan, ip: Option<&Ip>, context: &TaskContext, deadline: Deadline) -> Result<()> {
    if let Some(ip) = ip.filter(|ip| ip.address.is_some()) {
        return fixed(link, plan, ip, context).await;
    }
    if ip.is_some_and(|ip| matches!(ip.method, Method::Auto6 | Method::LinkLocal)) {
        return Ok(());
    }
    let mac = link.mac.ok_or_else(|| Error::new("no hardware address"))?;
    let mut client = Client::open(&link.name, link.index, mac, &plan.pin.servers)?;
    let mut claimed = false;
    let lease = match client.acquire(deadline.at_most(FALLBACK_AFTER)).await {
        Ok(lease) => lease,
        Err(e) if deadline.passed() => return Err(e),
        Err(_) if plan.pin.leases_only() => client.acquire(deadline).await?,
        Err(_) => {
            match arp::claim(&link.name, link.index, mac, deadline).await {
                Ok(address) => {
                    claimed = true;
                    log::debug!("{}: no DHCP yet; {address} for the metadata service", link.name);
                    let address = Address::new(link.index, address.into(), arp::PREFIX);
                    context.add_address(address).await?;
                    context.report(TaskEvent::Uplink(uplink(link, Reach::Ipv4).into()));
                }
                Err(e) => log::debug!("{e}"),
            }
            client.acquire(deadline).await?
        }
    };
    leased(link, lease, claimed, plan.name_servers(ip), context).await
}

/// Applies the address and routes of a lease. `claimed`: the link has an address from 169.254/16, too. `dns`: the name servers of
/// the kernel command line.
async fn leased(link: &Link, lease: Lease, claimed: bool, dns: Vec<IpAddr>, context: &TaskContext) -> Result<()> {
    let own = lease.address.ok_or_else(|| Error::new("a lease without an address"))?;
    log::info!("{}: {own}/{} by DHCP", link.name, lease.prefix);
    // Only a smaller MTU matters for the requests here, and IPv6 needs 1280.
    if let Some(mtu) = lease.mtu.map(u32::from).filter(|mtu| *mtu < link.mtu && *mtu >= 1280) {
        context.set_mtu(link.index, mtu).await;
    }
    let address = Address::new(link.index, own.into(), lease.prefix);
    context.add_address(address).await?;
    let mut routes = lease.routes.clone();
    if !lease.reaches(METADATA) {
        // Without a route to the service, it is assumed to be on the link, as without DHCP.
        routes.push(LeaseRoute { destination: METADATA, prefix: 32, gateway: None });
    } else if claimed {
        // The kernel's own route for the claimed address would hide a router that leads to the service.
        routes.extend(lease.around_link_local(METADATA));
    }
    // Routes on the link come before those that need them to reach a gateway.
    crate::base::sort::by_key(&mut routes, |r| r.gateway.is_some());
    for route in routes {
        let (destination, gateway) = (route.destination.into(), route.gateway.map(IpAddr::from));
        add_route(link, destination, route.prefix, gateway, context).await;
    }
    context.keep_lease(&lease);
    let mut uplink = uplink(link, Reach::Ipv4);
    uplink.dns = dns.into_iter().chain(lease.dns.iter().copied().map(IpAddr::from)).collect();
    uplink.search = if lease.search.is_empty() { Some(lease.domain.clone()) } else { None }
        .into_iter()
        .chain(lease.search.clone())
        .filter(|d| !d.is_empty())
        .collect();
    uplink.lease = Some(lease);
    context.report(TaskEvent::Uplink(uplink.into()));
    Ok(())
}

/// Applies the address and routes of the kernel command line.
async fn fixed(link: &Link, plan: &LinkPlan, ip: &Ip, context: &TaskContext) -> Result<()> {
    let Some((own, prefix)) = ip.address else { return Ok(()) };
    context.add_address(Address::new(link.index, own, prefix)).await?;
    if let Some(gateway) = ip.gateway.filter(|g| g.is_ipv4() == own.is_ipv4()) {
        let all: IpAddr =
            if own.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        add_route(link, all, 0, Some(gateway), context).await;
    } else if own.is_ipv4() {
        add_route(link, METADATA.into(), 32, None, context).await;
    }
    for route in plan.routes.iter().filter(|r| r.destination.is_ipv4() == own.is_ipv4()) {
        add_route(link, route.destination, route.prefix, route.gateway, context).await;
    }
    let mut uplink = uplink(link, if own.is_ipv4() { Reach::Ipv4 } else { Reach::Ipv6Routed });
    uplink.dns = plan.name_servers(Some(ip));
    context.report(TaskEvent::Uplink(uplink.into()));
    Ok(())
}

/// Adds one route. If the kernel refuses it, the others may still be useful.
async fn add_route(link: &Link, destination: IpAddr, prefix: u8, gateway: Option<IpAddr>, context: &TaskContext) {
    let route = Route { index: link.index, destination, prefix, gateway, metric: METRIC + link.index };
    if let Err(e) = context.add_route(route).await {
        log::warn!("{}: {e}", link.name);
    }
}

/// Waits for the kernel to add the link-local address and to hear routers; events report both. `dns`: the name servers of the
/// kernel command line.
async fn ipv6(link: &Link, dns: Vec<IpAddr>, context: &TaskContext, deadline: Deadline) {
    let own = within(deadline.at_most(V6_WAIT), context.links.wait_until(|l| l.has_link_local_ipv6(link.index))).await;
    if own {
        context.report(TaskEvent::Uplink(uplink(link, Reach::Ipv6LinkLocal).into()));
    }
    context.report(TaskEvent::Ended(link.index, Reach::Ipv6LinkLocal, None));
    if own && within(deadline.at_most(ROUTER_WAIT), context.links.wait_until(|l| l.has_ipv6_router(link.index))).await {
        // The advertisement that names the router has an address and name servers, too.
        within(deadline.at_most(ADDRESS_WAIT), context.links.wait_until(|l| l.has_global_ipv6(link.index))).await;
        let dns = dns.into_iter().chain(context.links.name_servers6(link.index)).collect();
        let uplink = Uplink { dns, ..uplink(link, Reach::Ipv6Routed) };
        context.report(TaskEvent::Uplink(uplink.into()));
    }
    context.report(TaskEvent::Ended(link.index, Reach::Ipv6Routed, None));
}

fn uplink(link: &Link, reach: Reach) -> Uplink {
    Uplink::of(&link.name, link.index, reach)
}

fn named(link: &Link, error: Error) -> Error {
    // DHCP's errors name the link already.
    if error.to_string().starts_with(&format!("{}:", link.name)) { error } else { error.context(&link.name) }
}

async fn within(deadline: Deadline, wait: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(deadline.left(), wait).await.is_ok()
}

/// Runs two futures at the same time, until both have ended.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    use std::task::Poll;
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let mut done = (false, false);
    std::future::poll_fn(|cx| {
        done.0 = done.0 || one.as_mut().poll(cx).is_ready();
        done.1 = done.1 || other.as_mut().poll(cx).is_ready();
        if done.0 && done.1 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
