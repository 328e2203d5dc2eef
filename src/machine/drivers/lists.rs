//! Parses kmod's lists: modules for a device, dependencies of a module, and modprobe.d.

use super::super::beneath;
use crate::base::glob;
use std::path::Path;

/// The most files of a modprobe.d folder.
const MAX_FILES: usize = 64;
/// The longest parameters of a module, in bytes: the kernel accepts one page.
const MAX_OPTIONS: usize = 4000;

/// The name of a module, from the path of its file: `kernel/drivers/net/virtio-net.ko.xz` is `virtio_net`.
pub fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split(".ko").next().unwrap_or_default().replace('-', "_")
}

/// Whether a name in a list means the module `name`: `-` and `_` are equivalent.
pub fn is_named(written: &str, name: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || matches!((a, b), (b'-', b'_') | (b'_', b'-'));
    written.len() == name.len() && written.bytes().zip(name.bytes()).all(same)
}

/// The modules in modules.alias for any of the modaliases.
pub fn resolve<'a>(list: &'a str, modaliases: &[String]) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for line in list.lines() {
        let Some(line) = line.strip_prefix("alias ") else { continue };
        // Comparing the text before the first wildcard excludes most lines.
        let may_fit = |alias: &&String| {
            let same = |(a, b): &(u8, u8)| a == b && !b"*?[".contains(a);
            let plain = line.bytes().zip(alias.bytes()).take_while(same).count();
            line.as_bytes().get(plain).is_some_and(|next| b"*?[ ".contains(next))
        };
        let mut near = modaliases.iter().filter(may_fit).peekable();
        let Some((pattern, module)) = near.peek().and_then(|_| line.rsplit_once(' ')) else { continue };
        if near.any(|alias| glob::matches(pattern.trim_end(), alias)) && !found.contains(&module) {
            found.push(module);
        }
    }
    found
}

/// The files of the modules and of their dependencies (modules.dep and modules.softdep), in the order in
/// which they can be loaded. `aliases` returns modules.alias, which is only read if modules.softdep has a
/// name that is not a module's, such as crypto-crc32c.
pub fn closure<'a>(dep: &'a str, soft: &str, aliases: &dyn Fn() -> String, names: &[&str]) -> Vec<&'a str> {
    let mut paths = files(dep, names);
    let mut first: Vec<&str> = Vec::new();
    for line in soft.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("softdep"), Some(module)) = (words.next(), words.next()) else { continue };
        if paths.iter().any(|path| is_file_of(path, module)) {
            first.extend(words.filter(|word| !word.ends_with(':')));
        }
    }
    if first.is_empty() {
        return paths;
    }
    let others = first.iter().filter(|name| files(dep, &[**name]).is_empty());
    let others: Vec<String> = others.map(|name| name.to_string()).collect();
    let list = if others.is_empty() { String::new() } else { aliases() };
    first.extend(resolve(&list, &others));
    let mut all = files(dep, &first);
    paths.retain(|path| !all.contains(path));
    all.append(&mut paths);
    all
}

fn is_file_of(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    is_named(file.split(".ko").next().unwrap_or_default(), name)
}

fn files<'a>(dep: &'a str, names: &[&str]) -> Vec<&'a str> {
    let mut paths: Vec<&str> = Vec::new();
    for line in dep.lines() {
        let Some((path, needs)) = line.split_once(':') else { continue };
        if !names.iter().any(|name| is_file_of(path, name)) {
            continue;
        }
        // modules.dep(5) has what is needed first at the end.
        for need in needs.split_ascii_whitespace().rev().chain([path]) {
            if !paths.contains(&need) {
                paths.push(need);
            }
        }
    }
    paths
}

/// The settings for modules in modprobe.d(5) and on the kernel command line.
#[derive(Default)]
pub struct Rules {
    /// Modules that must not be loaded for a device (`blacklist`).
    barred: Vec<String>,
    /// Modules with an `install` command, which are not loaded here.
    replaced: Vec<String>,
    /// Modules and their parameters.
    options: Vec<(String, String)>,
}

impl Rules {
    /// Reads the root's files, and the words of the kernel command line.
    pub fn read(root: &Path, words: &[String]) -> Rules {
        // As systemd's default: otherwise the module creates an interface.
        let mut rules = Rules { options: vec![("bonding".into(), "max_bonds=0".into())], ..Rules::default() };
        for folder in ["usr/lib/modprobe.d", "lib/modprobe.d", "etc/modprobe.d"] {
            let mut names = beneath::names(root, folder);
            names.sort();
            for name in names.iter().filter(|name| name.ends_with(".conf")).take(MAX_FILES) {
                let text = beneath::read(root, &format!("{folder}/{name}")).unwrap_or_default();
                text.replace("\\\n", " ").lines().for_each(|line| rules.line(line));
            }
        }
        for word in words {
            if let Some(list) = word.strip_prefix("modprobe.blacklist=") {
                rules.barred.extend(list.split(',').map(str::to_owned));
            } else if let Some((module, option)) = word.split_once('.')
                && !module.contains('=')
            {
                rules.options.push((module.to_owned(), option.to_owned()));
            }
        }
        rules
    }

    fn line(&mut self, line: &str) {
        let (what, rest) = line.trim().split_once([' ', '\t']).unwrap_or_default();
        let (module, rest) = rest.trim().split_once([' ', '\t']).unwrap_or((rest.trim(), ""));
        match what {
            "blacklist" => self.barred.push(module.to_owned()),
            "install" => self.replaced.push(module.to_owned()),
            "options" => self.options.push((module.to_owned(), rest.trim().to_owned())),
            _ => {}
        }
    }

    /// Whether the module must not be loaded just because its device exists.
    pub fn is_barred(&self, name: &str) -> bool {
        self.barred.iter().any(|barred| is_named(barred, name))
    }

    /// Whether a command has to be run instead of loading the module.
    pub fn is_replaced(&self, name: &str) -> bool {
        self.replaced.iter().any(|replaced| is_named(replaced, name))
    }

    /// The module's parameters, in one line.
    pub fn options(&self, name: &str) -> String {
        let own = self.options.iter().filter(|(module, _)| is_named(module, name)).map(|(_, options)| options.as_str());
        let mut all = own.collect::<Vec<_>>().join(" ");
        if all.len() > MAX_OPTIONS {
            all.clear();
        }
        all
    }
}
