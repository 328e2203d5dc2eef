//! Configurations as people write them, with all that a stack's own parser could stumble over.

/// Version 2.
pub const V2: &str = "network:
  version: 2
  ethernets:
    lan0: {match: {macaddress: '52:54:00:00:00:01'}, set-name: lan0, mtu: 1450, wakeonlan: true}
    lan1: {optional: true}
    lan2:
      addresses: [192.0.2.2/24, '2001:db8::2/64']
      gateway4: 192.0.2.1
      accept-ra: no
      nameservers: {addresses: [192.0.2.53, '2001:db8::53'], search: [example.org, example.net]}
      routes:
        - {to: 198.51.100.0/24, via: 192.0.2.9, metric: 50, table: 7, mtu: 1300}
        - {to: 203.0.113.0/24, via: 192.0.3.1, on-link: true}
        - {to: '2001:db8:1::/48', via: 'fe80::9'}
      routing-policy: [{from: 192.0.2.0/24, table: 7, priority: 30}]
    lan3: {dhcp4: true, dhcp4-overrides: {use-dns: false, route-metric: 700, send-hostname: false}}
    lan4: {dhcp4: true, dhcp6: true, ipv6-privacy: true}
    lan5: {}
  bonds:
    bond0:
      interfaces: [lan0, lan1]
      macaddress: '52:54:00:00:00:09'
      parameters: {mode: active-backup, mii-monitor-interval: 100, primary: lan1, gratuitous-arp: 2}
  vlans:
    bond0.5: {id: 5, link: bond0, addresses: [10.5.0.2/24], mtu: 1400}
    lan4.7: {id: 7, link: lan4}
  bridges:
    br0:
      interfaces: [lan5, lan4.7]
      addresses: [10.7.0.2/24]
      parameters: {stp: true, forward-delay: 4, hello-time: 2, max-age: 12, ageing-time: 250, priority: 9, path-cost: {lan5: 75}, port-priority: {lan5: 12}}
  vrfs:
    vrf9: {table: 9, interfaces: [bond0.5]}
  tunnels:
    gre1: {mode: gre, local: 192.0.2.2, remote: 192.0.2.7, key: 5, addresses: [10.9.0.1/30]}
    wg0:
      mode: wireguard
      port: 51820
      key: GMn3UNMGiInHBYxPvVNCsLV5NFAKP0vPNjrXYJHm2EQ=
      addresses: [10.10.0.1/24]
      peers:
        - {keys: {public: M9nt4YujIOmNrRmpIRTmYSfMdrpvE7u6WkG8FY8WjG4=}, allowed-ips: [0.0.0.0/0, '::/0'], endpoint: '192.0.2.8:51820', keepalive: 25}
";

/// Version 1.
pub const V1: &str = "network:
  version: 1
  config:
    - {type: physical, name: lan0, mac_address: '52:54:00:00:00:01', mtu: 1450, wakeonlan: true}
    - {type: physical, name: lan1, mac_address: '52:54:00:00:00:02'}
    - type: physical
      name: lan2
      subnets:
        - {type: static, address: 192.0.2.2/24, gateway: 192.0.2.1, dns_nameservers: [192.0.2.53], dns_search: [example.org],
           routes: [{network: 198.51.100.0, netmask: 255.255.255.0, gateway: 192.0.2.9, metric: 50}]}
        - {type: static6, address: '2001:db8::2/64', gateway: 'fe80::1'}
    - {type: physical, name: lan3, subnets: [{type: dhcp4, metric: 700}, {type: ipv6_dhcpv6-stateful}]}
    - {type: physical, name: lan4, subnets: [{type: dhcp, control: manual}]}
    - {type: physical, name: lan5, keep_configuration: true, subnets: [{type: ipv6_dhcpv6-stateless}]}
    - {type: physical, name: lan6, accept-ra: true, subnets: [{type: ipv6_slaac}]}
    - type: bond
      name: bond0
      mac_address: '52:54:00:00:00:09'
      bond_interfaces: [lan0, lan1]
      params: {bond-mode: active-backup, bond-miimon: 100, bond-primary: lan1, bond-num_grat_arp: 2}
    - {type: vlan, name: bond0.5, vlan_link: bond0, vlan_id: 5, mtu: 1400, subnets: [{type: static, address: 10.5.0.2/24}]}
    - {type: vlan, name: bond0.7, vlan_link: bond0, vlan_id: 7}
    - type: bridge
      name: br0
      bridge_interfaces: [bond0.7]
      params: {bridge_stp: 'on', bridge_fd: 4, bridge_hello: 2, bridge_maxage: 12, bridge_ageing: 250, bridge_bridgeprio: 9,
               bridge_pathcost: [bond0.7 75], bridge_portprio: [bond0.7 12]}
      subnets: [{type: static, address: 10.7.0.2/24}]
    - {type: nameserver, address: [192.0.2.54, '2001:db8::54'], search: example.com}
    - {type: route, destination: 203.0.113.0/24, gateway: 192.0.2.7, metric: 3}
    - {type: loopback, name: lo, subnets: [{type: loopback}]}
";
