//! `prepivot plan`: does the work of `apply` without changing anything, and prints the changes.

use super::boot::{Boot, Observer};
use super::local;
use super::modules::{Half, Idle, Run};
use super::outside::OfTree;
use super::provision;
use super::{Options, distributions};
use crate::base::error::Result;
use crate::base::mask;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::module::Module;
use crate::network::Renderer;
use crate::root::{Change, Command, Root, Stage, Use, owner};
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

pub use super::boot::NETWORK;

/// The changes that would be made, and the errors found while planning them.
pub struct Plan {
    pub root: Root,
    /// Changes in the order of their paths: first those before the pivot (None), then those of each stage of
    /// the real root.
    pub changes: Vec<(Option<Stage>, Change)>,
    pub errors: Vec<String>,
    pub report: Problems,
    pub instance: Instance,
    /// The merged configuration.
    pub config: Value,
    /// The network stack that is written for.
    pub renderer: Option<&'static Renderer>,
    /// What each module did; at which paths only if that was asked for ([`Like::traced`]).
    pub trace: Trace,
    /// The modules that never run here, and why.
    pub idle: Vec<(&'static Module, Idle)>,
    /// The files of the distribution that the root is like, by path.
    like: HashMap<String, Change>,
    /// The root as it is, once it was asked for.
    disk: OnceCell<Option<Root>>,
}

/// How a plan is made.
#[derive(Default)]
pub struct Like<'a> {
    /// The root is an empty folder, and to be taken for this distribution ([`super::distributions`]).
    pub distribution: Option<&'a str>,
    /// Whether to find out which paths each module changed.
    pub traced: bool,
}

/// What each module did.
#[derive(Default)]
pub struct Trace {
    /// The modules that ran, in order.
    pub modules: Vec<(Stage, &'static str)>,
    /// What was done at each path.
    paths: HashMap<String, Traced>,
    /// The module of each command, in order; empty: none.
    commands: Vec<&'static str>,
    /// The module that each problem of the report came from, in order; empty: none.
    pub problems: Vec<&'static str>,
}

/// What was done at a path.
#[derive(Default)]
struct Traced {
    /// The modules that changed something there, the last one at the end.
    modules: Vec<&'static str>,
    /// The changes there by now.
    changes: Vec<Change>,
}

impl Trace {
    /// A trace, and what has it made of all that a boot does from now on.
    pub(super) fn observed() -> (Rc<RefCell<Trace>>, Observer) {
        let trace = Rc::new(RefCell::new(Trace::default()));
        let observed = Rc::clone(&trace);
        (trace, Box::new(move |root, module, problems| observed.borrow_mut().observe(root, module, problems)))
    }

    /// Looks at what `module` changed of the root, and how many problems there are. Its name is empty for what no module did since the
    /// last time.
    fn observe(&mut self, root: &mut Root, module: &'static str, problems: usize) {
        for (path, changes) in root.take_traced() {
            let traced = self.paths.entry(path).or_default();
            if !module.is_empty() && changes.iter().any(|change| !traced.changes.contains(change)) {
                traced.modules.retain(|other| *other != module);
                traced.modules.push(module);
            }
            traced.changes = changes;
        }
        self.commands.resize(root.commands().len(), module);
        self.problems.resize(problems, module);
        if !matches!(module, "" | NETWORK) {
            self.modules.push((root.current_stage(), module));
        }
    }

    /// The modules that made a change, or [`NETWORK`]; the last one at the end.
    pub fn of_change(&self, change: &Change) -> &[&'static str] {
        self.paths.get(change.path()).map(|traced| traced.modules.as_slice()).unwrap_or_default()
    }

    /// The module that ran the command with this number; empty if none did.
    pub fn of_command(&self, number: usize) -> &'static str {
        self.commands.get(number).copied().unwrap_or_default()
    }
}

/// Plans the provisioning of the tree at `path` with a seed, all stages of it.
///
/// # Errors
/// The tree or the seed cannot be read.
pub fn plan(path: &Path, seed: &Path) -> Result<Plan> {
    plan_like(path, seed, &Like::default())
}

/// The same, for a root that may be like a distribution.
///
/// # Errors
/// As [`plan`]; there is no such distribution.
pub fn plan_like(path: &Path, seed: &Path, how: &Like) -> Result<Plan> {
    let machine = Machine::read(path);
    let mut root = Root::open(path, Use::Plan)?;
    let recovered = super::recover(&mut root);
    let outside = OfTree::new(path);
    let mut like = HashMap::new();
    if let Some(name) = how.distribution.filter(|_| cfg!(feature = "tools")) {
        distributions::put(&mut root, name)?;
        like = root.changes().into_iter().map(|change| (change.path().to_owned(), change)).collect();
    }
    let mut boot = Boot::new(&root, &machine, &Options::default(), &outside);
    boot.report.absorb(recovered);
    let (trace, observer) = Trace::observed();
    boot.observer = Some(observer);
    if how.traced && cfg!(feature = "tools") {
        root.trace_changes();
    }
    let instance = local::seeded(&mut root, &mut boot, seed)?;
    let mut last = root.changes();
    let mut changes: Vec<(Option<Stage>, Change)> =
        last.iter().filter(|c| like.get(c.path()) != Some(c)).map(|c| (None, c.clone())).collect();
    root.enter(Stage::Network);
    provision::files_of_running_system(&mut root, &instance, &boot.report);
    provision::boothooks(&mut root, &mut boot, &instance);
    for stage in Stage::WITH_MODULES {
        root.enter(stage);
        let mut run = Run::new(&mut root, &mut boot, &instance);
        run.stage(stage, Half::Running);
        if stage == Stage::Final {
            run.background();
        }
        let now = root.changes();
        let known: HashSet<&Change> = last.iter().collect();
        changes.extend(now.iter().filter(|c| !known.contains(c)).map(|c| (Some(stage), c.clone())));
        last = now;
    }
    let idle = Run::new(&mut root, &mut boot, &instance).idle_modules();
    let renderer = super::network::renderer(&root, &boot.image, &Problems::new());
    let (errors, config) = (boot.errors(), boot.config().clone());
    let report = boot.report.take();
    drop(boot);
    let trace = trace.take();
    Ok(Plan { root, changes, errors, report, instance, config, renderer, trace, idle, like, disk: OnceCell::new() })
}

impl Plan {
    /// One JSON object per line: the changes, then the commands, each in order. `when` names the stage of the real
    /// root; changes before the pivot lack it.
    pub fn to_json_lines(&self) -> String {
        let changes = self.changes.iter().map(|(when, change)| {
            let mut value = change.to_value(&self.root);
            if let (Some(stage), Value::Map(map)) = (when, &mut value) {
                map.insert("when", stage.name());
            }
            value
        });
        let commands = self.root.commands().iter().map(command);
        changes.chain(commands).map(|v| json::to_string(&v) + "\n").collect()
    }

    /// The plan for people: a line for each change, with a diff if a world-readable file exists, then the
    /// commands. All changes of prepivot's own state share one line.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (state, changes): (Vec<_>, Vec<_>) = self.changes.iter().partition(|(_, change)| is_state(change.path()));
        for (when, change) in changes {
            out += &shown(&line(change, *when, &self.root));
            if let Change::Write { path, content, attr, .. } = change {
                let old = self.on_disk(path);
                let public = attr.mode & 0o004 != 0;
                match (old, String::from_utf8(content.to_vec())) {
                    (Some(old), Ok(new)) if public => {
                        let lines = super::diff::lines(&old, &new, "      ");
                        out.extend(lines.split_inclusive('\n').map(|line| shown(&mask::options(line))));
                    }
                    _ => {}
                }
            }
        }
        if !state.is_empty() {
            out += &format!("  state   {} and {} ({} changes)\n", state::CLOUD_DIR, state::RUN_DIR, state.len());
        }
        for command in self.root.commands() {
            let argv = mask::secrets(&command.argv.join(" "), &command.secrets).into_owned();
            let what = if command.is_request { "send" } else { "run" };
            out += &shown(&format!("  {what:<7} {argv} ({})\n", command.when.name()));
        }
        if out.is_empty() { "nothing changes\n".into() } else { out }
    }

    /// The text of a file before the plan.
    pub fn on_disk(&self, path: &str) -> Option<String> {
        if let Some(Change::Write { content, .. }) = self.like.get(path) {
            return String::from_utf8(content.to_vec()).ok();
        }
        let disk = self.disk.get_or_init(|| Root::open(self.root.path(), Use::Plan).ok()).as_ref()?;
        String::from_utf8(disk.read(path).ok()??).ok()
    }
}

/// Whether a path is prepivot's own state.
pub fn is_state(path: &str) -> bool {
    let below = |folder| path.strip_prefix(folder).is_some_and(|rest: &str| rest.is_empty() || rest.starts_with('/'));
    below(state::CLOUD_DIR) || below(state::RUN_DIR)
}

/// A line for a terminal: without the credentials of URLs, and with control characters escaped, since names
/// and texts of a seed are not to be trusted.
pub(super) fn shown(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in mask::urls(line.strip_suffix('\n').unwrap_or(line)).chars() {
        if c.is_control() && c != '\t' { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.push('\n');
    out
}

fn line(change: &Change, when: Option<Stage>, root: &Root) -> String {
    let when = when.map(|stage| format!(" ({})", stage.name())).unwrap_or_default();
    let owner = |uid, gid| format!("{}:{}", owner::user_name(root, uid), owner::group_name(root, gid));
    match change {
        Change::Write { path, content, attr, .. } => {
            format!(
                "  write   {path} ({:04o} {}, {} bytes){when}\n",
                attr.mode,
                owner(attr.uid, attr.gid),
                content.len()
            )
        }
        Change::Mkdir { path, attr } => {
            format!("  mkdir   {path} ({:04o} {}){when}\n", attr.mode, owner(attr.uid, attr.gid))
        }
        Change::Symlink { path, target } => format!("  symlink {path} -> {target}{when}\n"),
        Change::Remove { path } => format!("  remove  {path}{when}\n"),
        Change::Chown { path, attr } => format!("  chown   {path} ({}){when}\n", owner(attr.uid, attr.gid)),
        Change::Chmod { path, attr } => format!("  chmod   {path} ({:04o}){when}\n", attr.mode),
    }
}

/// A command as a plan prints it: secrets and the credentials of URLs are masked.
pub fn command(command: &Command) -> Value {
    let masked = |text: &str| mask::secrets(text, &command.secrets).into_owned();
    let mut map = Map::new();
    if let (true, [method, url]) = (command.is_request, command.argv.as_slice()) {
        map.insert("change", "send");
        map.insert("method", method.as_str());
        map.insert("url", masked(url));
        map.insert("when", command.when.name());
        return Value::Map(map);
    }
    map.insert("change", "run");
    map.insert("argv", command.argv.iter().map(|a| Value::from(masked(a))).collect::<Vec<_>>());
    if let Some(stdin) = &command.stdin {
        map.insert("stdin", masked(&String::from_utf8_lossy(stdin)));
    }
    if !command.env.is_empty() {
        let env: Map = command.env.iter().map(|(k, v)| (k.as_str(), masked(v))).collect();
        map.insert("env", env);
    }
    map.insert("when", command.when.name());
    Value::Map(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn seed_cannot_forge_lines_or_move_cursor() {
        let (tree, seed) = (TempDir::new("plan-tree"), TempDir::new("plan-seed"));
        let user_data = "#cloud-config\nwrite_files:\n- {path: \"/a\\e[2J\\n  remove  /etc/x\", content: b}\n";
        for (name, text) in [("meta-data", "instance-id: i\n"), ("user-data", user_data)] {
            std::fs::write(seed.0.join(name), text).unwrap();
        }
        let text = plan(&tree.0, &seed.0).unwrap().to_text();
        assert!(text.contains("\n  write   /a\\u{1b}[2J\\n  remove  /etc/x (0644 root:root, 1 bytes)\n"), "{text}");
        assert_eq!(text.find(|c: char| c.is_control() && c != '\n'), None);
    }

    /// A plan, as text and as JSON.
    fn planned(user_data: &str) -> [String; 2] {
        let (tree, seed) = (TempDir::new("plan-tree"), TempDir::new("plan-seed"));
        for (path, text) in [("etc/os-release", "ID=fedora\n"), ("etc/motd", "old\n"), ("etc/fstab", "# fstab\n")] {
            std::fs::create_dir_all(tree.0.join("etc")).unwrap();
            std::fs::write(tree.0.join(path), text).unwrap();
        }
        for (name, text) in [("meta-data", "instance-id: i\n"), ("user-data", user_data)] {
            std::fs::write(seed.0.join(name), text).unwrap();
        }
        let plan = plan(&tree.0, &seed.0).unwrap();
        [plan.to_text(), plan.to_json_lines().lines().filter(|l| l.contains("\"run\"")).collect()]
    }

    #[test]
    fn shows_requests_and_what_comes_before() {
        let (tree, seed) = (TempDir::new("plan-tree"), TempDir::new("plan-seed"));
        tree.write("etc/os-release", "ID=debian\n");
        tree.program("usr/bin/ssh-keygen");
        let planned = |user_data: &str| {
            seed.write("meta-data", "instance-id: i\n");
            seed.write("user-data", format!("#cloud-config\nlocale: false\n{user_data}\n"));
            let plan = plan(&tree.0, &seed.0).unwrap();
            assert_eq!(plan.errors, Vec::<String>::new());
            let text = plan.to_text();
            let lines =
                text.lines().filter(|l| l.starts_with("  run ") || l.starts_with("  send ") || l.contains("/srv/"));
            (lines.map(str::to_owned).collect::<Vec<_>>(), plan.to_json_lines())
        };
        let key = "  run     ssh-keygen -q -t rsa -b 3072 -N  -C root@localhost -f /etc/ssh/ssh_host_rsa_key (final)";
        let reload = "  run     systemctl --no-block try-reload-or-restart ssh (final)";
        let (lines, json) = planned(
            "phone_home: {url: 'http://me:geheim@h.example/$INSTANCE_ID', post: [pub_key_rsa, pub_key_ecdsa]}\n\
             write_files: [{path: /srv/a, source: {uri: 'http://h.example/a'}, content: other}, \
             {path: /srv/b, defer: true, source: {uri: 'http://h.example/b'}}]\n\
             chef: {install_type: omnibus, force_install: true, server_url: u, validation_name: v, omnibus_url: 'http://h.example/o'}",
        );
        let send = |what: &str| format!("  send    {what}");
        let chef = "  run     /var/lib/cloud/instances/i/installer/chef-omnibus-install (final)";
        assert_eq!(
            lines,
            [
                send("GET http://h.example/a (init)"),
                send("GET http://h.example/b (final)"),
                send("GET http://h.example/o (final)"),
                chef.into(),
                key.into(),
                reload.into(),
                send("POST http://********@h.example/i (final)"),
            ]
        );
        let sent = r#"{"change":"send","method":"POST","url":"http://********@h.example/i","when":"final"}"#;
        assert!(json.contains(&format!("{sent}\n")), "{json}");
        // The key that is made in the background, and a key that will not exist.
        assert_eq!(planned("manage_etc_hosts: false").0, [key, reload]);
        let (lines, _) = planned("phone_home: {url: 'http://h', post: [pub_key_rsa]}\nssh_genkeytypes: [ed25519]");
        assert_eq!(lines, [send("POST http://h (final)")]);
    }

    #[test]
    fn credentials_in_urls_are_masked() {
        let [text, json] = planned(
            "#cloud-config\npackages: ['https://me:geheim@h/x.rpm']\n\
             random_seed: {command: [sh, -c, 'curl https://me:geheim@h/seed']}\n\
             write_files: [{path: /etc/motd, content: 'see http://me:geheim@h/'}]\n",
        );
        for what in [&text, &json] {
            assert!(what.contains("https://********@h/x.rpm") && what.contains("https://********@h/seed"), "{what}");
            assert!(!what.contains("geheim"), "{what}");
        }
        assert!(text.contains("http://********@h/"), "{text}");
    }

    #[test]
    fn passwords_of_mounts_and_repositories_are_not_shown() {
        let [text, _] = planned(
            "#cloud-config\nmounts: [[//server/share, /mnt, cifs, 'rw,user=me,password=geheim']]\n\
             yum_repos: {a: {baseurl: 'https://h/', password: geheim}}\n",
        );
        assert!(text.contains("user=me,password=********,nofail") && !text.contains("geheim"), "{text}");
        assert!(text.contains("write   /etc/yum.repos.d/a.repo (0600 root:root"), "{text}");
    }

    #[test]
    fn secrets_of_a_command_are_masked() {
        let registered = Command::new(["register", "--key=geheim"]).env("KEY", "geheim").stdin("geheim\n");
        let registered = Command { when: Stage::Config, ..registered.secret("geheim") };
        let shown = json::to_string(&command(&registered));
        assert_eq!(
            shown,
            r#"{"change":"run","argv":["register","--key=********"],"stdin":"********\n","env":{"KEY":"********"},"when":"config"}"#
        );
    }
}
