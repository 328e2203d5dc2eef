//! # ansible
//!
//! Installs Ansible, from the distribution or with pip, and runs ansible-galaxy, ansible-pull and the playbooks of a controller, in
//! this order; as root, or as `run_user`.
//!
//! Keys of `pull` and of `run_ansible` are the options of ansible-pull and ansible-playbook, with `_` for `-`.
//!
//! ```yaml
//! ansible:
//!   install_method: distro
//!   package_name: ansible-core
//!   pull:
//!   - url: https://git.example.com/site.git
//!     playbook_names: [site.yml]
//! ```
//!
//! ```schema
//! $pull = {
//!  (one playbook_name playbook_names)
//!  accept_host_key, clean, full, diff, verify_commit: bool
//!  ssh_common_args, scp_extra_args, sftp_extra_args, private_key, checkout, module_path, timeout, url!, connection,
//!   vault_id, vault_password_file, inventory, module_name, sleep, tags, skip_tags: str
//!  playbook_name: str ~25.2 playbook_names
//!  playbook_names: [str]
//! }
//! ansible: {
//!  install_method: (distro pip)
//!  run_user, ansible_config, package_name: str
//!  setup_controller: {
//!   repositories: [{path!, source!: str}]
//!   run_ansible: [{
//!    playbook_name, playbook_dir, become_password_file, connection_password_file, vault_id, vault_password_file,
//!     module_path, args, extra_vars, inventory, scp_extra_args, sftp_extra_args, private_key, connection, module_name,
//!     sleep, tags, skip_tags: str
//!    list_hosts, syntax_check, check, diff: bool
//!    timeout, background, poll, forks: num(0..)
//!    ...
//!   }]
//!  }
//!  galaxy: {actions!: [[str/line_or_nothing]]}
//!  pull: [$pull] | $pull ~25.2 "Use a list of mappings."
//! }
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, json, wrong};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Command, Output, Stage, installed};
use crate::system::{ModuleContext, packages, service, shell};

pub static MODULE: Module = Module {
    name: "ansible",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["ansible"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("ansible").filter(|s| !s.is_empty()) else { return Ok(()) };
    let job = Job::read(section)?;
    service::wait_for_network(cx);
    job.install(cx)?;
    if let Some(galaxy) = section.get("galaxy").filter(|g| !g.is_null()) {
        let actions = galaxy.get("actions").and_then(Value::as_list).unwrap_or_default();
        if actions.is_empty() {
            cx.report.warn("ansible.galaxy.actions: expected a list of commands: nothing is run");
        }
        for action in actions {
            job.run(cx, &shell::words("ansible.galaxy.actions", action)?, None)?;
        }
    }
    for pull in &job.pulls {
        job.pull(cx, pull)?;
    }
    for repository in list_of(section, "repositories") {
        let text = |key: &str| repository.get(key).and_then(Value::text);
        let (Some(source), Some(path)) = (text("source"), text("path")) else {
            return Err(Error::new("ansible.setup_controller.repositories: an entry needs source and path"));
        };
        job.run(cx, &["git".into(), "clone".into(), source, path], None)?;
    }
    for playbook in list_of(section, "run_ansible") {
        let text = |key: &str| playbook.get(key).and_then(Value::text);
        let (Some(dir), Some(name)) = (text("playbook_dir"), text("playbook_name")) else {
            return Err(Error::new(
                "ansible.setup_controller.run_ansible: an entry needs playbook_dir and playbook_name",
            ));
        };
        let options = playbook.as_map().into_iter().flat_map(|m| options(m, &["playbook_dir", "playbook_name"]));
        let argv: Vec<String> = ["ansible-playbook".into(), name].into_iter().chain(options).collect();
        job.run(cx, &argv, Some(&dir))?;
    }
    Ok(())
}

fn list_of<'a>(section: &'a Map, key: &str) -> &'a [Value] {
    let list = section.get("setup_controller").and_then(|c| c.get(key)).and_then(Value::as_list);
    list.unwrap_or_default()
}

/// Keys as command options: true becomes the option alone, false is left out.
fn options(map: &Map, but: &[&str]) -> Vec<String> {
    let kept = map.iter().filter(|(k, v)| !but.contains(k) && !v.is_null());
    let option = |(key, value): (&str, &Value)| {
        let name = key.replace('_', "-");
        match value {
            Value::Bool(true) => Some(format!("--{name}")),
            Value::Bool(false) => None,
            other => Some(format!("--{name}={}", other.text().unwrap_or_else(|| json::to_string(other)))),
        }
    };
    kept.filter_map(option).collect()
}

/// A command, and the user that runs it.
struct Job<'a> {
    by_pip: bool,
    package: String,
    user: Option<String>,
    config: Option<String>,
    pulls: Vec<&'a Map>,
}

impl<'a> Job<'a> {
    /// Parses the configuration.
    ///
    /// # Errors
    /// A key is missing or has the wrong form.
    fn read(section: &'a Map) -> Result<Job<'a>> {
        let text = |key: &str| section.get(key).and_then(Value::text).filter(|t| !t.is_empty());
        let needed = |key: &str| text(key).ok_or_else(|| Error::new(format!("ansible.{key}: it is needed")));
        let (method, package) = (needed("install_method")?, needed("package_name")?);
        let one_or_more = match section.get("pull") {
            None | Some(Value::Null) => &[][..],
            Some(Value::List(list)) => list.as_slice(),
            Some(one @ Value::Map(_)) => std::slice::from_ref(one),
            Some(other) => return Err(wrong("ansible.pull", "a list of mappings", other)),
        };
        let mut pulls = Vec::new();
        for pull in one_or_more {
            let map = pull.as_map().ok_or_else(|| wrong("ansible.pull", "a list of mappings", pull))?;
            let has = |key: &str| map.get(key).is_some_and(|v| !v.is_null());
            if !has("url") {
                return Err(Error::new("ansible.pull: an entry needs url"));
            }
            if has("playbook_name") == has("playbook_names") {
                return Err(Error::new("ansible.pull: an entry needs playbook_names, or else playbook_name"));
            }
            pulls.push(map);
        }
        if section.get("setup_controller").and_then(Value::as_map).is_some_and(|c| !c.is_empty())
            && list_of(section, "repositories").is_empty()
            && list_of(section, "run_ansible").is_empty()
        {
            return Err(Error::new("ansible.setup_controller: expected repositories or run_ansible"));
        }
        if !["pip", "distro"].contains(&method.as_str()) {
            return Err(Error::new("ansible.install_method: expected pip or distro"));
        }
        let by_pip = method == "pip";
        Ok(Job { by_pip, package, user: text("run_user"), config: text("ansible_config"), pulls })
    }

    /// The command, as root or as the user in the user's shell.
    fn command(&self, argv: &[String], dir: Option<&str>) -> Command {
        let Some(user) = &self.user else {
            let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
            let command = Command::new(argv.iter().cloned()).env("HOME", home);
            let command = self.config.iter().fold(command, |c, path| c.env("ANSIBLE_CONFIG", path.clone()));
            return dir.into_iter().fold(command, Command::dir);
        };
        let mut line = dir.map(|dir| format!("cd {} && ", shell::quoted_if_needed(dir))).unwrap_or_default();
        // Programs that pip installs for a user are not in every PATH.
        line.push_str(if self.by_pip { "env PATH=$PATH:$HOME/.local/bin" } else { "env PATH=$PATH" });
        if let Some(path) = &self.config {
            line.push_str(&format!(" ANSIBLE_CONFIG={}", shell::quoted_if_needed(path)));
        }
        argv.iter().for_each(|word| line.push_str(&format!(" {}", shell::quoted_if_needed(word))));
        Command::new(["su".to_owned(), "-".into(), user.clone(), "-c".into(), line])
    }

    fn run(&self, cx: &mut ModuleContext, argv: &[String], dir: Option<&str>) -> Result<()> {
        cx.root.run(self.command(argv, dir))
    }

    fn output(&self, cx: &mut ModuleContext, argv: &[&str]) -> Result<Output> {
        let argv: Vec<String> = argv.iter().map(|w| (*w).to_owned()).collect();
        cx.root.output(self.command(&argv, None))
    }

    /// Installs what is missing.
    ///
    /// # Errors
    /// It cannot be installed, or is still missing afterwards.
    fn install(&self, cx: &mut ModuleContext) -> Result<()> {
        if !self.is_installed(cx)? {
            if self.by_pip {
                self.install_by_pip(cx)?;
            } else {
                packages::install(cx, std::slice::from_ref(&self.package))?;
            }
            if cx.root.runs_commands() && !self.is_installed(cx)? {
                return Err(Error::new("ansible: it is not installed"));
            }
        }
        Ok(())
    }

    fn is_installed(&self, cx: &mut ModuleContext) -> Result<bool> {
        if !self.by_pip {
            return Ok(installed::which(cx.root, "ansible").is_some());
        }
        Ok(self.pip_list(cx)?.is_some_and(|list| list.contains("ansible")))
    }

    /// The packages that pip has installed. None without pip.
    fn pip_list(&self, cx: &mut ModuleContext) -> Result<Option<String>> {
        let mut argv = vec![python(cx), "-m".into(), "pip".into(), "list".into()];
        argv.extend(self.user.as_ref().map(|_| "--user".into()));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let output = self.output(cx, &argv)?;
        Ok((output.status == 0).then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    fn install_by_pip(&self, cx: &mut ModuleContext) -> Result<()> {
        if self.pip_list(cx)?.is_none() {
            let name = match cx.distro.family {
                Family::Alpine => "py3-pip",
                Family::Arch => "python-pip",
                Family::Gentoo => "dev-python/pip",
                _ => "python3-pip",
            };
            packages::install(cx, &[name.to_owned()])?;
        }
        let mut argv = vec![python(cx), "-m".into(), "pip".into(), "install".into()];
        // A system whose Python packages are managed by the distribution (PEP 668).
        let is_marked = |root: &crate::root::Root, folder: &str| {
            let names = root.list(folder).into_iter().filter(|name| name.starts_with("python3"));
            names.into_iter().any(|name| root.exists(&format!("{folder}/{name}/EXTERNALLY-MANAGED")))
        };
        if ["/usr/lib", "/usr/lib64"].iter().any(|folder| is_marked(cx.root, folder)) {
            argv.push("--break-system-packages".into());
        }
        argv.extend(self.user.as_ref().map(|_| "--user".into()));
        let upgrade: Vec<String> = argv.iter().cloned().chain(["--upgrade".into(), "pip".into()]).collect();
        if let Err(e) = self.run(cx, &upgrade, None) {
            cx.report.warn(format_args!("ansible: failed to upgrade pip: {e}"));
        }
        argv.push(self.package.clone());
        self.run(cx, &argv, None)
    }

    /// Runs ansible-pull: once for all playbooks if it supports that, else once for each.
    fn pull(&self, cx: &mut ModuleContext, pull: &Map) -> Result<()> {
        let output = self.output(cx, &["ansible-pull", "--version"])?;
        let version = version(&String::from_utf8_lossy(&output.stdout));
        if version.is_none() && cx.root.runs_commands() {
            cx.report.warn("ansible: ansible-pull does not say its version: playbooks are run one by one");
        }
        if version.is_some_and(|v| v < (2, 7)) && pull.get("diff").is_some_and(Value::is_true) {
            return Err(Error::new("ansible.pull.diff: it needs Ansible 2.7 or later"));
        }
        let names = pull.get("playbook_names").filter(|names| !names.is_null()).or_else(|| pull.get("playbook_name"));
        let names = names.map(Value::texts).unwrap_or_default();
        let options = options(pull, &["playbook_name", "playbook_names"]);
        let at_once = if version.is_some_and(|v| v >= (2, 12)) { names.len().max(1) } else { 1 };
        for names in names.chunks(at_once) {
            let argv = [String::from("ansible-pull")].into_iter().chain(options.iter().cloned());
            self.run(cx, &argv.chain(names.iter().cloned()).collect::<Vec<_>>(), None)?;
        }
        Ok(())
    }
}

fn python(cx: &ModuleContext) -> String {
    installed::which(cx.root, "python3").unwrap_or_else(|| "/usr/bin/python3".into())
}

/// The first number of the first line: `ansible-pull [core 2.13.2]`, `ansible 2.10.8`.
fn version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().next()?;
    let number = line
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find(|n| n.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split('.').map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next().and_then(|p| p.ok()).unwrap_or(0)))
}
