//! What yum_add_repo and zypper_add_repo write is read by DNF and zypper themselves, which find the repositories with the values
//! of the cloud-config. They see nothing but the tree, and ask no network.

use prepivot::base::problem::Problems;
use prepivot::base::testing::{TempDir, skip};
use prepivot::document::yaml;
use prepivot::instance::Instance;
use prepivot::machine::Distro;
use prepivot::module;
use prepivot::root::{Root, Use};
use prepivot::system::ModuleContext;
use std::path::Path;
use std::process::Command;

/// Applies a cloud-config by one module to a new tree, as far as it is done before the pivot.
fn provisioned(name: &str, distro: &str, config: &str) -> TempDir {
    let dir = TempDir::new(name);
    for folder in ["etc/zypp/repos.d", "etc/yum.repos.d", "var/cache", "var/lib/rpm"] {
        std::fs::create_dir_all(dir.0.join(folder)).expect("folders");
    }
    std::fs::write(dir.0.join("etc/zypp/zypp.conf"), "[main]\n## download.use_deltarpm = true\n").expect("written");
    let mut root = Root::open(&dir.0, Use::Tree).expect("a root");
    let report = Problems::new();
    let half = module::find(name).and_then(|m| m.before_pivot).expect("the module");
    let config = yaml::parse("cloud-config", config).expect("YAML");
    let (instance, distro) = (Instance::default(), Distro::named(distro));
    let result = half(&mut ModuleContext { ..ModuleContext::new(&mut root, &config, &instance, &distro, &report) });
    assert_eq!((result.map_err(|e| e.to_string()), report.entries()), (Ok(()), vec![]));
    assert_eq!(root.commit(), []);
    dir
}

/// What a program prints. None where it is not installed.
fn printed(program: &str, words: &[String]) -> Option<String> {
    if !Path::new(program).exists() {
        skip(format!("{program} is not installed"));
        return None;
    }
    let output = Command::new(program).args(words).env("LC_ALL", "C.UTF-8").output().expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !err.contains("Invalid"), "{program}: {out}{err}");
    Some(out.into_owned())
}

/// The value after `key`, which other text may precede, in a table of `key : value` lines.
fn value<'t>(table: &'t str, key: &str) -> Option<&'t str> {
    let mut pairs = table.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim().ends_with(key)).map(|(_, value)| value.trim())
}

#[test]
fn dnf_reads_the_repositories_of_yum_repos() {
    let config = "yum_repos:\n  epel:\n    name: Extra packages, 100 %\n    baseurl: file:///srv/epel/9\n    enabled: true\n    \
                  gpgcheck: true\n    gpgkey: [file:///etc/pki/a, file:///etc/pki/b]\n    priority: 5\n    \
                  exclude: [kernel, 'gl*']\n  spare:\n    name: Spare\n    baseurl: file:///srv/off\n    enabled: false\n";
    let tree = provisioned("yum_add_repo", "fedora", config);
    let root = tree.0.display();
    let words = |more: &[&str]| -> Vec<String> {
        let own = [
            "-q".to_owned(),
            "--cacheonly".to_owned(),
            format!("--installroot={root}"),
            "--releasever=9".to_owned(),
            format!("--setopt=reposdir={root}/etc/yum.repos.d"),
            format!("--setopt=cachedir={root}/var/cache"),
        ];
        own.into_iter().chain(more.iter().map(|w| (*w).to_owned())).collect()
    };
    let Some(listed) = printed("/usr/bin/dnf", &words(&["repolist", "--all"])) else { return };
    let state = |id: &str| listed.lines().find(|l| l.starts_with(id)).and_then(|l| l.split_whitespace().last());
    assert_eq!((state("epel"), state("spare")), (Some("enabled"), Some("disabled")), "{listed}");
    assert!(listed.contains("Extra packages, 100 %"), "{listed}");
    // `dnf config-manager --dump` shows the same, from a package that excludes zypper's.
    let script = "import sys, dnf\nbase = dnf.Base()\nbase.conf.reposdir, base.conf.cachedir = [sys.argv[1]], sys.argv[2]\n\
                  base.conf.substitutions['releasever'] = '9'\nbase.read_all_repos()\nprint(base.repos['epel'].dump())";
    let (repos, cache) = (format!("{root}/etc/yum.repos.d"), format!("{root}/var/cache"));
    let words = ["-c", script, &repos, &cache].map(str::to_owned);
    let dump = printed("/usr/bin/python3", &words).expect("the Python that DNF is written in");
    for line in [
        "baseurl = file:///srv/epel/9",
        "gpgcheck = 1",
        "gpgkey = file:///etc/pki/a, file:///etc/pki/b",
        "priority = 5",
        "excludepkgs = kernel, gl*",
    ] {
        assert!(dump.lines().any(|l| l == line), "{line} is not in:\n{dump}");
    }
}

#[test]
fn zypper_reads_the_repositories_of_zypper() {
    let config = "zypper:\n  repos:\n  - {id: tools, name: Tools and more, baseurl: 'dir:/srv/tools', enabled: 1, autorefresh: 1, \
                  gpgcheck: 0, priority: 42}\n  - {id: spare, name: Spare, baseurl: 'dir:/srv/spare', enabled: 0}\n  config: \
                  {download.use_deltarpm: false}\n";
    let tree = provisioned("zypper_add_repo", "opensuse", config);
    let words = |id: &str| {
        ["--root", tree.0.to_str().expect("UTF-8"), "--non-interactive", "--no-refresh", "repos", id].map(str::to_owned)
    };
    let Some(tools) = printed("/usr/bin/zypper", &words("tools")) else { return };
    for (key, wanted) in [
        ("Alias", "tools"),
        ("Name", "Tools and more"),
        ("URI", "dir:/srv/tools"),
        ("Enabled", "Yes"),
        ("Priority", "42 (raised priority)"),
        ("Autorefresh", "On"),
        ("GPG Check", "(  ) No"),
    ] {
        assert_eq!(value(&tools, key), Some(wanted), "{key} in:\n{tools}");
    }
    let spare = printed("/usr/bin/zypper", &words("spare")).expect("zypper");
    assert_eq!(value(&spare, "Enabled"), Some("No"), "{spare}");
    let conf = std::fs::read_to_string(tree.0.join("etc/zypp/zypp.conf")).expect("zypp.conf");
    assert!(conf.lines().any(|l| l.replace(' ', "") == "download.use_deltarpm=false"), "{conf}");
}
