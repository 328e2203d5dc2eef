//! Facts about the root: its release, its architecture, installed packages, and the paths of APT's sources.

use crate::root::Root;
use crate::system::shell;
use std::collections::BTreeSet;

const DPKG_STATUS: &str = "/var/lib/dpkg/status";
/// The largest such file that is read, in bytes. A full desktop has 6 MB.
const MAX_STATUS: u64 = 16 << 20;
/// The largest file of APT's configuration that is read, in bytes.
const MAX_CONF: u64 = 1 << 20;

/// The name of the release, as in suites: `bookworm`, `noble`. From os-release(5), which lsb_release(1) reads too.
pub fn codename(root: &Root) -> Option<String> {
    ["/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release"].iter().find_map(|path| {
        let text = root.text(path);
        let named = ["VERSION_CODENAME", "UBUNTU_CODENAME", "DISTRIB_CODENAME"];
        let name = named.iter().find_map(|key| shell::variable(&text, key))?;
        (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)))
            .then(|| name.to_owned())
    })
}

/// Whether the root is Ubuntu Core, whose packages are snaps (`util.system_is_snappy`).
pub fn is_core(root: &Root) -> bool {
    let is =
        |path: &str| shell::variable(&root.text(path), "ID").is_some_and(|id| id.eq_ignore_ascii_case("ubuntu-core"));
    is("/etc/os-release")
        || is("/usr/lib/os-release")
        || root.text("/etc/system-image/channel.ini").to_ascii_lowercase().contains("ubuntu-core")
        || root.is_dir("/etc/system-image/config.d")
}

/// dpkg's name for the architecture: that of the dpkg that is installed, else this program's.
pub fn architecture(root: &Root) -> String {
    let text = root.text_at_most(DPKG_STATUS, MAX_STATUS);
    let dpkg = text.split("\n\n").find(|stanza| stanza.lines().any(|l| l == "Package: dpkg"));
    let named = dpkg.and_then(|stanza| stanza.lines().find_map(|l| l.strip_prefix("Architecture: ")));
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "i386",
        "aarch64" => "arm64",
        "arm" => "armhf",
        "powerpc64" => "ppc64el",
        other => other,
    };
    named.unwrap_or(own).trim().to_owned()
}

/// Names of installed packages.
pub fn installed(root: &Root) -> BTreeSet<String> {
    let text = root.text_at_most(DPKG_STATUS, MAX_STATUS);
    let name = |stanza: &str| {
        let field = |key: &str| stanza.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
        let state = field("Status:")?;
        (state.ends_with(" ok installed") && !state.starts_with("deinstall"))
            .then(|| field("Package:").map(str::to_owned))?
    };
    text.split("\n\n").filter_map(name).collect()
}

/// Where APT reads its sources: the file in the one-line format, and the folder of others (apt.conf(5), `Dir::Etc`).
pub struct Places {
    pub list: String,
    pub parts: String,
}

impl Places {
    /// As the root's configuration of APT says.
    pub fn of(root: &Root) -> Places {
        let mut values = [
            ("dir::etc", "etc/apt".to_owned()),
            ("dir::etc::sourcelist", "sources.list".to_owned()),
            ("dir::etc::sourceparts", "sources.list.d".to_owned()),
        ];
        // apt.conf(5): no extension or `.conf`; the main file last.
        let folder = "/etc/apt/apt.conf.d";
        let is_read = |name: &String| !name.contains('.') || name.ends_with(".conf");
        let parts = root.list(folder).into_iter().filter(is_read).map(|name| format!("{folder}/{name}"));
        for path in parts.chain(["/etc/apt/apt.conf".to_owned()]) {
            if root.stat(&path).is_some_and(|s| s.size <= MAX_CONF) {
                settings(&root.text(&path), &mut |key, value| {
                    if let Some(known) = values.iter_mut().find(|(name, _)| key.eq_ignore_ascii_case(name)) {
                        known.1 = value.to_owned();
                    }
                });
            }
        }
        let [(_, etc), (_, list), (_, parts)] = values;
        let below = |path: &str| match path.strip_prefix('/') {
            Some(_) => path.trim_end_matches('/').to_owned(),
            None => format!("/{}/{}", etc.trim_matches('/'), path.trim_end_matches('/')),
        };
        Places { list: below(&list), parts: below(&parts) }
    }
}

/// Gives each setting of a file of apt.conf(5), by its whole name.
fn settings(text: &str, set: &mut dyn FnMut(&str, &str)) {
    let mut scopes: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return };
        if first == '#' || rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, after)| after);
            continue;
        }
        if matches!(first, ';' | '{' | '}') {
            let name = |word: &str| scopes.iter().map(String::as_str).chain([word]).collect::<Vec<_>>().join("::");
            if let [key, value, ..] = words.as_slice() {
                set(&name(key), value);
            }
            match first {
                // Anonymous and absurdly nested groups hold nothing that is looked for.
                '{' => scopes.push(words.first().filter(|_| scopes.len() < 8).cloned().unwrap_or_default()),
                '}' => drop(scopes.pop()),
                _ => {}
            }
            words.clear();
            rest = &rest[1..];
            continue;
        }
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => {
                let end = rest.find(|c: char| c.is_whitespace() || ";{}\"".contains(c)).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        // A statement has a name and a value; further words are ignored.
        if words.len() < 2 {
            words.push(word.to_owned());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    fn root_with(files: &[(&str, &str)]) -> (TempDir, Root) {
        let dir = TempDir::with("apt-facts", files);
        let root = dir.root(Use::Tree);
        (dir, root)
    }

    #[test]
    fn places_are_what_apts_configuration_says() {
        let (_dir, root) = root_with(&[]);
        let places = Places::of(&root);
        assert_eq!((places.list.as_str(), places.parts.as_str()), ("/etc/apt/sources.list", "/etc/apt/sources.list.d"));
        let (_dir, root) = root_with(&[
            ("etc/apt/apt.conf.d/10a", "// c\nDir { ETC \"etc/myapt\" { sourcelist \"a.list\"; /* x */ }; };\n"),
            (
                "etc/apt/apt.conf.d/20b.conf",
                "Dir::Etc::SourceParts \"/srv/parts/\"; # d\nAPT::Architectures { \"a\"; };",
            ),
            ("etc/apt/apt.conf.d/30c.bak", "Dir::Etc \"no\";"),
            ("etc/apt/apt.conf", "Dir::Etc::sourcelist \"my.list\";"),
        ]);
        let places = Places::of(&root);
        assert_eq!((places.list.as_str(), places.parts.as_str()), ("/etc/myapt/my.list", "/srv/parts"));
        for broken in ["{{{{{{{{{{{{", "}}}", "a \"b", "/*", "Dir::Etc", ";;"] {
            settings(broken, &mut |_, _| {});
        }
    }

    #[test]
    fn release_architecture_and_packages() {
        let status = "Package: adduser\nStatus: install ok installed\nArchitecture: all\n\n\
                      Package: dpkg\nStatus: install ok installed\nArchitecture: armhf\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nArchitecture: armhf\n";
        let (_dir, root) = root_with(&[
            ("etc/os-release", "ID=debian\nVERSION_CODENAME=\"bookworm\"\n"),
            ("var/lib/dpkg/status", status),
        ]);
        assert_eq!((codename(&root).as_deref(), architecture(&root).as_str()), (Some("bookworm"), "armhf"));
        assert_eq!(installed(&root).into_iter().collect::<Vec<_>>(), ["adduser", "dpkg"]);
        let (_dir, root) = root_with(&[("etc/os-release", "VERSION_CODENAME='a b'\n")]);
        assert_eq!((codename(&root), is_core(&root)), (None, false));
        assert_ne!(architecture(&root), "");
        let (_dir, root) = root_with(&[("usr/lib/os-release", "ID=ubuntu-core\n")]);
        assert!(is_core(&root));
    }
}
