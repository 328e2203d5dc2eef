//! The files are accepted by the stacks' own programs: netplan's generator, NetworkManager's library, ifupdown, and
//! systemd-networkd, which has to bring the devices up. A test whose program is missing is skipped.

mod real;

use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::document::{Value, yaml};
use prepivot::machine::Distro;
use prepivot::network::read::config;
use prepivot::network::{File, Macs, Network, Target, render};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The inputs: the two of [`real`], and the vectors where they are present.
fn networks() -> Vec<(String, Network)> {
    let read = |name: &str, value: &Value| {
        (name.to_owned(), config::read(name, value, &Macs::default(), &Problems::new()).expect("valid"))
    };
    let mut all: Vec<_> =
        [("v1", real::V1), ("v2", real::V2)].map(|(name, t)| read(name, &yaml::parse(name, t).expect("valid"))).into();
    let vectors = prepivot::document::testing::vectors("network.json");
    let mut seen: Vec<&Value> = Vec::new();
    for case in vectors.iter().flat_map(|v| v.as_list().unwrap_or_default()) {
        let (Some(input), Some(name)) = (case.get("input"), case.get("name").and_then(Value::as_str)) else { continue };
        // Some have placeholders in place of MAC addresses.
        if input.is_null() || seen.contains(&input) || format!("{input:?}").contains("xx:xx:xx") {
            continue;
        }
        seen.push(input);
        match input.as_str() {
            Some(text) => all.push(read(name, &yaml::parse(name, text).expect("valid"))),
            None => all.push(read(name, input)),
        }
    }
    all
}

fn rendered(network: &Network, renderer: &str) -> Vec<File> {
    let target = Target { distro: Distro::named("debian"), ip_tool: true, old_netplan: false };
    render::by_name(renderer).expect("a renderer").files(network, &target, &Problems::new())
}

/// The first of these programs that is there. None, and a line that says so, where none is.
fn program(names: &[&str]) -> Option<PathBuf> {
    let folders =
        ["/usr/libexec/netplan", "/usr/lib/netplan", "/usr/sbin", "/usr/bin", "/usr/lib/systemd", "/lib/systemd"];
    let paths = names.iter().flat_map(|n| folders.map(|f| Path::new(f).join(n)));
    let found = paths.into_iter().find(|p| p.exists());
    if found.is_none() {
        prepivot::base::testing::skip(format!("{} is not installed", names.join(" or ")));
    }
    found
}

fn write_below(root: &Path, files: &[File]) {
    for file in files {
        let path = root.join(file.path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(&path, &file.content).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(file.mode)).expect("a mode");
        if let Some(owner) = file.owner {
            // Where the user is not known, or we may not, the test says what it needs.
            let _ = run(Command::new("chown").arg(owner).arg(&path), "");
        }
    }
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program");
    // A program that does not read its input closes it.
    let _ = child.stdin.take().expect("stdin").write_all(input.as_bytes());
    child.wait_with_output().expect("a result")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn netplan_takes_its_file() {
    let Some(generate) = program(&["generate"]) else { return };
    for (name, network) in networks() {
        // Version 2 goes to netplan as it is, mistakes and all.
        if network.v2.is_some() && name != "v2" {
            continue;
        }
        let root = TempDir::new("netplan");
        let files = rendered(&network, "netplan");
        write_below(&root.0, &files);
        let out = run(Command::new(&generate).arg("--root-dir").arg(&root.0), "");
        let said = text(&out.stderr);
        assert!(
            out.status.success() && !said.contains("Error in network definition"),
            "{name}: {said}\n{}",
            files[0].content
        );
    }
}

/// Lines that NetworkManager does not write again where they say its default, or nothing beside `method=disabled`.
/// The mode of a bond it calls by name.
const DEFAULTS: &[&str] = &["may-fail=true", "may-fail=false", "stp=true", "hello-time=2", "mode=4"];

#[test]
fn network_manager_keeps_every_line() {
    let Some(nmcli) = program(&["nmcli"]) else { return };
    let mut lost = Vec::new();
    for (name, network) in networks() {
        let files = rendered(&network, "network-manager");
        for file in files.iter().filter(|f| f.path.ends_with(".nmconnection")) {
            let out = run(
                Command::new(&nmcli).args(["--offline", "connection", "modify", "connection.zone", ""]),
                &file.content,
            );
            let (told, said) = (text(&out.stdout).to_lowercase(), text(&out.stderr));
            assert!(out.status.success() && said.is_empty(), "{name}: {}: {said}\n{}", file.path, file.content);
            // It writes the gateway behind the first address.
            let told: Vec<&str> = told.lines().collect();
            let with_gateway = |l: &str| {
                told.iter().any(|t| {
                    t.starts_with("address1=")
                        && l.strip_prefix("gateway=").is_some_and(|g| t.ends_with(&format!(",{g}")))
                })
            };
            let first = |l: &str| l.starts_with("address1=") && told.iter().any(|t| t.starts_with(&format!("{l},")));
            let content = file.content.to_lowercase();
            let lines = content.lines().filter(|l| l.contains('=') && !l.starts_with('#'));
            for line in lines.filter(|l| !DEFAULTS.contains(l)) {
                let kept = told.contains(&line) || with_gateway(line) || first(line);
                if !kept {
                    lost.push(format!("{name}: {}: {line}", file.path));
                }
            }
        }
    }
    assert!(lost.is_empty(), "NetworkManager does not keep\n{}", lost.join("\n"));
}

#[test]
fn ifupdown_takes_its_file() {
    let Some(ifup) = program(&["ifup"]) else { return };
    for (name, network) in networks() {
        let root = TempDir::new("ifup");
        let files = rendered(&network, "eni");
        let file = files.first().expect("a file");
        let path = root.0.join("interfaces");
        std::fs::write(&path, &file.content).expect("written");
        let mut names: Vec<&str> =
            file.content.lines().filter_map(|l| l.strip_prefix("iface ")?.split(' ').next()).collect();
        names.dedup();
        let arguments = ["--no-act", "--force", "--no-scripts", "--verbose", "--state-dir"];
        let out = run(Command::new(&ifup).args(arguments).arg(&root.0).arg("-i").arg(&path).args(&names), "");
        let said = text(&out.stderr);
        assert!(out.status.success(), "{name}: {said}\n{}", file.content);
        for interface in names {
            assert!(said.contains(&format!("configuring interface {interface}=")), "{name}: {interface}\n{said}");
        }
        for word in ["rror", "nknown", "issing", "issed", "uplicate"] {
            assert!(!said.contains(word), "{name}: {said}\n{}", file.content);
        }
    }
}

/// Starts networkd in namespaces of its own, on the links of [`real`], and prints what came of it, first the kinds of
/// devices that this kernel has. Without a running udev, a /sys that can't be written makes networkd not wait for one.
const NETWORKD: &str = r#"
set -eu
networkd=$1 files=$2
mount -t tmpfs tmpfs /run
mount -t sysfs -o ro sysfs /sys
mkdir -p /etc/systemd/network /run/systemd/netif
for folder in links leases lldp; do mkdir /run/systemd/netif/$folder; done
chown -R systemd-network:systemd-network /run/systemd/netif
mount --bind "$files/etc/systemd/network" /etc/systemd/network
ip link add probe type veth peer name prober
for kind in bond "vrf table 9" "gre remote 192.0.2.7" "vlan link probe id 5" bridge wireguard; do
    case $kind in
    vlan*) ip link add link probe name probed type vlan id 5 ;;
    *) ip link add probed type $kind ;;
    esac 2>/dev/null && ip link del probed && echo "kernel has ${kind%% *}"
    :
done
ip link del probe
for n in 0 1 2 3 4 5; do
    ip link add lan$n address 52:54:00:00:00:0$((n + 1)) type veth peer name peer$n
    ip link set peer$n up
done
"$networkd" 2>"$files/log" &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
report() {
    for kind in bond vrf gre vlan bridge wireguard; do ip -d -o link show type $kind 2>/dev/null || true; done
    ip -o link show
    ip -o addr show
    ip -4 route show table all
    ip -6 route show table all
    ip rule show
}
# What comes last, of what the kernel can have.
for _ in $(seq 600); do
    kill -0 $pid || break
    report >"$files/state"
    if grep -q 'br0 .*inet 10.7.0.2' "$files/state" && grep -q 'br0:.*LOWER_UP' "$files/state" &&
        grep -q '^198.51.100.0' "$files/state" && grep -q '^2001:db8:1::' "$files/state" &&
        { ! ip link show bond0 || ! ip link show bond0.5 || grep -q 'bond0.5 .*inet 10.5.0.2' "$files/state"; } >/dev/null 2>&1
    then
        break
    fi
    sleep 0.1
done
cat "$files/state"
"#;

#[test]
fn networkd_brings_up_what_is_asked() {
    let Some(networkd) = program(&["systemd-networkd"]) else { return };
    let spaces = ["--net", "--mount", "--pid", "--fork", "--kill-child"];
    if !run(Command::new("unshare").args(spaces).args(["ip", "link", "add", "x", "type", "veth"]), "").status.success()
    {
        prepivot::base::testing::skip("no network namespace can be made here");
        return;
    }
    let network = config::read("v2", &yaml::parse("v2", real::V2).expect("valid"), &Macs::default(), &Problems::new())
        .expect("valid");
    let root = TempDir::new("networkd");
    write_below(&root.0, &rendered(&network, "networkd"));
    // networkd gives up its rights, and reads the files as a user of its own.
    std::fs::set_permissions(&root.0, PermissionsExt::from_mode(0o755)).expect("a mode");
    let out =
        run(Command::new("unshare").args(spaces).args(["sh", "-c", NETWORKD, "sh"]).arg(&networkd).arg(&root.0), "");
    let (told, said) = (text(&out.stdout), text(&out.stderr));
    let log = std::fs::read_to_string(root.0.join("log")).unwrap_or_default();
    let has = |words: &[&str]| {
        let found = told.lines().any(|line| words.iter().all(|w| line.contains(w)));
        assert!(found, "no line with {words:?} in\n{told}\n{said}\n{log}");
    };
    let kernel = |kind: &str| {
        let has = told.lines().any(|l| l == format!("kernel has {kind}"));
        if !has {
            prepivot::base::testing::skip(format!("this kernel has no {kind}"));
        }
        has
    };
    if kernel("bond") {
        has(&["bond0:", "mode active-backup", "miimon 100", "primary lan1", "num_grat_arp 2", "52:54:00:00:00:09"]);
        has(&["lan0@", "master bond0"]);
        has(&["lan1@", "master bond0"]);
    }
    if kernel("vlan") {
        has(&["lan4.7@lan4", "master br0", "vlan protocol 802.1Q id 7 "]);
        if kernel("bond") {
            has(&["bond0.5@bond0", "mtu 1400", "id 5 "]);
            has(&["bond0.5 ", "inet 10.5.0.2/24"]);
            if kernel("vrf") {
                has(&["vrf9:", "vrf table 9 "]);
                has(&["bond0.5@bond0", "master vrf9"]);
            }
        }
    }
    if kernel("gre") {
        has(&["gre1@", "remote 192.0.2.7 local 192.0.2.2", "key 0.0.0.5"]);
    }
    if kernel("wireguard") {
        has(&["wg0 ", "inet 10.10.0.1/24"]);
    }
    has(&["br0:", "stp_state 1", "priority 9 ", "forward_delay 400 ", "hello_time 200 ", "max_age 1200 "]);
    has(&["lan5@", "master br0"]);
    has(&["br0 ", "inet 10.7.0.2/24"]);
    has(&["lan2 ", "inet 192.0.2.2/24"]);
    has(&["lan2 ", "inet6 2001:db8::2/64"]);
    has(&["default via 192.0.2.1 dev lan2"]);
    has(&["198.51.100.0/24 via 192.0.2.9 dev lan2 table 7", "metric 50", "mtu 1300"]);
    has(&["203.0.113.0/24 via 192.0.3.1 dev lan2", "onlink"]);
    has(&["2001:db8:1::/48 via fe80::9 dev lan2"]);
    has(&["30:", "from 192.0.2.0/24 lookup 7"]);
    for word in ["Unknown", "Failed to", "ignoring", "Invalid"] {
        let wrong = log.lines().find(|l| l.contains("cloud-init") && l.contains(word));
        assert_eq!(wrong, None, "{log}");
    }
}
