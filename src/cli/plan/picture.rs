//! A plan as one document: what happens when and why, what comes out, and the line that each result came from.

use super::document::{Document, map};
use super::findings::Finding;
use super::origins::Finder;
use super::secrets::Secrets;
use crate::base::problem::Problems;
use crate::document::{Value, json};
use crate::instance::state;
use crate::network::model::{DeviceType, Interface, Method};
use crate::network::read::{self, config};
use crate::network::{Macs, Network};
use crate::root::{Change, Stage, installed};
use crate::stage::diff;
use crate::stage::plan::{self, Plan, is_state};

/// The version of the document.
const VERSION: i64 = 1;
/// The most changes, lines, accounts and the like that are listed; the rest is counted.
const MAX_LISTED: usize = 2_000;
/// The largest difference of a file that is shown, and of all together, in bytes.
const MAX_DIFF: usize = 32 << 10;
const MAX_DIFFS: usize = 2 << 20;

/// What a plan is shown with.
pub struct View<'a> {
    pub plan: &'a Plan,
    pub documents: &'a [Document],
    pub found: &'a [Finding],
    pub secrets: &'a Secrets,
    pub origins: &'a Finder<'a>,
    /// The root or distribution, as the command line named it.
    pub target: &'a str,
}

fn number(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

fn texts<S: AsRef<str>>(list: impl IntoIterator<Item = S>) -> Value {
    Value::List(list.into_iter().map(|text| Value::from(text.as_ref())).collect())
}

impl View<'_> {
    /// The whole document.
    pub fn to_value(&self) -> Value {
        let plan = self.plan;
        let text = |text: &str| Value::from(self.secrets.clean(text));
        let instance = map(vec![
            ("id", text(&plan.instance.instance_id)),
            ("datasource", text(&plan.instance.source)),
            ("hostname", text(plan.root.text("/etc/hostname").trim())),
        ]);
        let state = plan.changes.iter().filter(|(_, change)| is_state(change.path())).count();
        map(vec![
            ("version", Value::Int(VERSION)),
            ("target", self.target.into()),
            ("distribution", installed::distro(&plan.root).name.into()),
            ("instance", instance),
            ("stages", self.stages()),
            ("changes", self.changes()),
            ("state_changes", number(state)),
            ("commands", self.commands()),
            ("users", self.users()),
            ("groups", self.groups()),
            ("network", self.network()),
            ("mounts", self.mounts()),
            ("packages", self.packages()),
            ("problems", Value::List(self.found.iter().map(|finding| self.problem(finding)).collect())),
            ("documents", Value::List(self.documents.iter().map(|document| self.document(document)).collect())),
        ])
    }

    fn problem(&self, finding: &Finding) -> Value {
        let mut entries =
            vec![("severity", finding.level.name().into()), ("document", finding.document.as_str().into())];
        if let Some((line, column)) = finding.place {
            entries.extend([("line", number(line)), ("column", number(column))]);
        }
        let clean = |text: &str| Value::from(self.secrets.clean(text));
        entries.extend([("key", clean(&finding.key)), ("problem", clean(&finding.what)), ("fix", clean(&finding.fix))]);
        map(entries)
    }

    fn document(&self, document: &Document) -> Value {
        map(vec![
            ("name", document.usage.name().into()),
            ("path", document.path.as_str().into()),
            ("line_count", number(document.text.lines().count())),
            ("lines", texts(self.secrets.lines(document).into_iter().take(MAX_LISTED))),
        ])
    }

    /// The stages with their modules, in the order in which they ran.
    fn stages(&self) -> Value {
        let what = [
            "before the pivot, or before the network",
            "with the network",
            "after the network is configured",
            "at the end",
        ];
        let stages = Stage::ALL.iter().zip(what).map(|(stage, what)| {
            let ran = self.plan.trace.modules.iter().filter(|(of, _)| of == stage);
            let modules =
                ran.map(|(_, module)| map(vec![("name", (*module).into()), ("from", self.origins.of_module(module))]));
            map(vec![
                ("name", stage.name().into()),
                ("unit", stage.unit().into()),
                ("when", what.into()),
                ("modules", Value::List(modules.collect())),
            ])
        });
        Value::List(stages.collect())
    }

    fn changes(&self) -> Value {
        let shown = self.plan.changes.iter().filter(|(_, change)| !is_state(change.path()));
        let mut left = MAX_DIFFS;
        let list = shown.take(MAX_LISTED).map(|(stage, change)| {
            let mut value = change.to_value(&self.plan.root);
            let modules = self.plan.trace.of_change(change);
            if let Value::Map(entries) = &mut value {
                entries.remove("content");
                entries.remove("content_base64");
                entries.insert("when", stage.unwrap_or(Stage::Local).name());
                entries.insert("module", modules.last().copied().unwrap_or_default());
                entries.insert("from", self.origins.of_change(change.path(), modules));
                if let Change::Write { content, attr, path, .. } = change {
                    entries.insert("size", number(usize::try_from(content.len()).unwrap_or(usize::MAX)));
                    entries.insert("new", self.plan.on_disk(path).is_none());
                    let is_public = attr.mode & 0o004 != 0 || self.secrets.shown;
                    entries.insert("masked", !is_public);
                    if let (true, Ok(new)) = (is_public, String::from_utf8(content.to_vec())) {
                        let shown = self.difference(path, &new, MAX_DIFF.min(left));
                        left = left.saturating_sub(shown.len());
                        entries.insert("diff", shown);
                    }
                }
            }
            value
        });
        Value::List(list.collect())
    }

    /// The lines of a file that go and come.
    fn difference(&self, path: &str, new: &str, most: usize) -> String {
        let old = self.plan.on_disk(path).unwrap_or_default();
        let mut shown = self.secrets.clean(&diff::lines(&old, new, ""));
        crate::base::text::cut(&mut shown, most);
        shown
    }

    fn commands(&self) -> Value {
        let commands = self.plan.root.commands().iter().enumerate().take(MAX_LISTED);
        let list = commands.map(|(at, command)| {
            let mut value = plan::command(command);
            let module = self.plan.trace.of_command(at);
            if let Value::Map(entries) = &mut value {
                if let Some(Value::List(argv)) = entries.get_mut("argv") {
                    argv.iter_mut()
                        .for_each(|word| *word = self.secrets.clean(word.as_str().unwrap_or_default()).into());
                }
                // Its variables and input are for programs.
                entries.remove("stdin");
                entries.remove("env");
                entries.insert("module", module);
                let argv: Vec<&str> = command.argv.iter().map(String::as_str).collect();
                entries.insert("from", self.origins.of_command(&argv, module));
            }
            value
        });
        Value::List(list.collect())
    }

    /// The lines of an account file, with whether each is new; those that stay as they are are left out.
    fn changed_lines(&self, path: &str) -> Vec<(bool, Vec<String>)> {
        let (old, new) = (self.plan.on_disk(path).unwrap_or_default(), self.plan.root.text(path));
        let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let names: Vec<String> = old.lines().map(name).collect();
        let old: std::collections::HashSet<&str> = old.lines().collect();
        let changed = new.lines().filter(|line| !old.contains(line)).take(MAX_LISTED);
        changed.map(|line| (!names.contains(&name(line)), line.split(':').map(str::to_owned).collect())).collect()
    }

    fn users(&self) -> Value {
        let root = &self.plan.root;
        let (shadow, group, passwd) = (root.text("/etc/shadow"), root.text("/etc/group"), root.text("/etc/passwd"));
        let mut changed = self.changed_lines("/etc/passwd");
        for (_, line) in self.changed_lines("/etc/shadow") {
            let name = line.first().cloned().unwrap_or_default();
            let line = passwd.lines().find(|line| line.split(':').next() == Some(name.as_str()));
            if let Some(line) = line.filter(|_| !changed.iter().any(|(_, fields)| fields.first() == Some(&name))) {
                changed.push((false, line.split(':').map(str::to_owned).collect()));
            }
        }
        let list = changed.into_iter().map(|(is_new, fields)| {
            let field = |at: usize| fields.get(at).map(String::as_str).unwrap_or_default();
            let name = field(0);
            let groups = group.lines().filter_map(|line| {
                let (group, members) = (line.split(':').next()?, line.rsplit(':').next()?);
                members.split(',').any(|member| member == name).then_some(group)
            });
            let hash = shadow.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let password = match hash.and_then(|rest| rest.split(':').next()).unwrap_or("*") {
                "" => "empty",
                hash if hash.starts_with(['!', '*']) => "locked",
                _ => "set",
            };
            let keys = root.text(&format!("{}/.ssh/authorized_keys", field(5)));
            let keys = keys.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
            let text = |text: &str| Value::from(self.secrets.clean(text));
            map(vec![
                ("name", text(name)),
                ("new", is_new.into()),
                ("uid", field(2).into()),
                ("gid", field(3).into()),
                ("comment", text(field(4))),
                ("home", text(field(5))),
                ("shell", text(field(6))),
                ("groups", texts(groups)),
                ("password", password.into()),
                ("keys", Value::List(keys.take(MAX_LISTED).map(text).collect())),
                ("from", self.origins.of_user(name)),
            ])
        });
        Value::List(list.collect())
    }

    fn groups(&self) -> Value {
        let list = self.changed_lines("/etc/group").into_iter().map(|(is_new, fields)| {
            let field = |at: usize| fields.get(at).map(String::as_str).unwrap_or_default();
            let members = field(3).split(',').filter(|member| !member.is_empty());
            map(vec![
                ("name", field(0).into()),
                ("new", is_new.into()),
                ("gid", field(2).into()),
                ("members", texts(members)),
                ("from", self.origins.of_group(field(0))),
            ])
        });
        Value::List(list.collect())
    }

    fn mounts(&self) -> Value {
        let (old, new) = (self.plan.on_disk("/etc/fstab").unwrap_or_default(), self.plan.root.text("/etc/fstab"));
        let added = new.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let added = added.filter(|line| !old.lines().any(|other| other == *line));
        let list = added.take(MAX_LISTED).map(|line| {
            let mut words = line.split_whitespace();
            let from = self.origins.of_mount(words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let line = self.secrets.clean(line);
            let mut fields = line.split_whitespace().map(Value::from);
            let mut field = || fields.next().unwrap_or_default();
            map(vec![("device", field()), ("folder", field()), ("type", field()), ("options", field()), ("from", from)])
        });
        Value::List(list.collect())
    }

    fn packages(&self) -> Value {
        let asked = self.plan.config.get("packages").and_then(Value::as_list).unwrap_or_default();
        let list = asked.iter().take(MAX_LISTED).map(|package| {
            let name = package.text().unwrap_or_else(|| json::to_string(package));
            map(vec![("name", self.secrets.clean(&name).into()), ("from", self.origins.of_package(package))])
        });
        Value::List(list.collect())
    }

    /// The network as the plan's document describes it. Null if it configures none.
    fn network(&self) -> Value {
        let path = format!("{}/network-config.json", state::folder(&self.plan.instance));
        let document = self.plan.root.read(&path).ok().flatten().and_then(|bytes| json::parse(&path, &bytes).ok());
        let Some(document) = document.filter(|document| !document.is_null()) else { return Value::Null };
        let format = read::recognise(&document).unwrap_or(&config::FORMAT);
        let Ok(network) = format.read("network", &document, &Macs::default(), &Problems::new()) else {
            return Value::Null;
        };
        let interfaces = network.interfaces.iter().take(MAX_LISTED).map(|found| {
            let mut value = interface(&network, found);
            if let Value::Map(entries) = &mut value {
                entries.insert("from", self.origins.of_device(&found.id));
            }
            value
        });
        map(vec![
            ("stack", self.plan.renderer.map(|renderer| renderer.name).unwrap_or_default().into()),
            ("interfaces", Value::List(interfaces.collect())),
            ("dns", texts(&network.dns.servers)),
            ("search", texts(&network.dns.search)),
        ])
    }
}

fn interface(network: &Network, interface: &Interface) -> Value {
    let (kind, detail, below) = match &interface.device_type {
        DeviceType::Ethernet => ("ethernet", String::new(), Vec::new()),
        DeviceType::Infiniband => ("infiniband", String::new(), Vec::new()),
        DeviceType::Loopback => ("loopback", String::new(), Vec::new()),
        DeviceType::Dummy => ("dummy", String::new(), Vec::new()),
        DeviceType::Wifi(_) => ("wifi", String::new(), Vec::new()),
        DeviceType::Bond { interfaces, params } => {
            let mode = params.get("mode").and_then(Value::text).unwrap_or_default();
            ("bond", mode, interfaces.clone())
        }
        DeviceType::Bridge { interfaces, .. } => ("bridge", String::new(), interfaces.clone()),
        DeviceType::Vlan { id, link } => ("vlan", id.to_string(), vec![link.clone()]),
        DeviceType::Vrf { table, interfaces } => ("vrf", table.to_string(), interfaces.clone()),
        DeviceType::Tunnel(keys) => ("tunnel", keys.get("mode").and_then(Value::text).unwrap_or_default(), Vec::new()),
    };
    let mut addresses: Vec<String> = Vec::new();
    let mut routes: Vec<String> = Vec::new();
    for subnet in &interface.subnets {
        match (subnet.method, &subnet.address) {
            (Method::Static, Some(address)) => addresses.push(address.to_string()),
            (Method::Dhcp4, _) => addresses.push("DHCPv4".into()),
            (Method::Dhcp6 | Method::Dhcp6Stateful | Method::Dhcp6Stateless, _) => addresses.push("DHCPv6".into()),
            (Method::Slaac, _) => addresses.push("router advertisements".into()),
            _ => {}
        }
        routes.extend(subnet.gateway.iter().map(|via| format!("default via {via}")));
    }
    let all = interface.subnets.iter().flat_map(|subnet| &subnet.routes).chain(&interface.routes);
    routes.extend(all.take(MAX_LISTED).map(|route| {
        let to = if route.to.is_default() { "default".to_owned() } else { route.to.to_string() };
        route.via.as_ref().map_or_else(|| to.clone(), |via| format!("{to} via {via}"))
    }));
    let dns = interface.subnets.iter().flat_map(|subnet| &subnet.dns.servers).chain(&network.dns_of(interface).servers);
    let mac = interface.matching.mac.as_deref().or(interface.mac.as_deref()).unwrap_or_default();
    map(vec![
        ("name", interface.name.as_str().into()),
        ("type", kind.into()),
        ("detail", detail.into()),
        ("mac", mac.into()),
        ("mtu", interface.mtu.map_or(Value::Null, |mtu| Value::Int(mtu.into()))),
        ("below", texts(below)),
        ("addresses", texts(addresses)),
        ("routes", texts(routes)),
        ("dns", texts(dns)),
    ])
}
