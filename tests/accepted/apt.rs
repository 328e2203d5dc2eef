//! What apt_configure writes is read by APT itself, which finds the sources and the settings that the cloud-config asks for,
//! and accepts a repository that is signed with a key of it. APT sees nothing but the tree, and asks no network.

use prepivot::base::problem::Problems;
use prepivot::base::testing::{TempDir, skip};
use prepivot::document::yaml;
use prepivot::instance::Instance;
use prepivot::machine::Distro;
use prepivot::module;
use prepivot::root::{Root, Use};
use prepivot::system::ModuleContext;
use std::path::Path;
use std::process::{Command, Output};

/// Applies a cloud-config to a new tree of Debian, as far as it is done before the pivot.
fn provisioned(name: &str, config: &str) -> TempDir {
    let dir = TempDir::new(name);
    for folder in [
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/lib/dpkg",
        "var/cache/apt/archives/partial",
    ] {
        std::fs::create_dir_all(dir.0.join(folder)).expect("folders");
    }
    std::fs::write(dir.0.join("etc/os-release"), "ID=debian\nVERSION_CODENAME=trixie\n").expect("written");
    let status = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nMaintainer: x <x@example.com>\nDescription: x\n";
    std::fs::write(dir.0.join("var/lib/dpkg/status"), status).expect("written");
    let mut root = Root::open(&dir.0, Use::Tree).expect("a root");
    let report = Problems::new();
    let half = module::find("apt_configure").and_then(|m| m.before_pivot).expect("the module");
    let result = half(&mut ModuleContext {
        ..ModuleContext::new(
            &mut root,
            &yaml::parse("cloud-config", config).expect("YAML"),
            &Instance::default(),
            &Distro::named("debian"),
            &report,
        )
    });
    assert_eq!((result.map_err(|e| e.to_string()), report.entries()), (Ok(()), vec![]));
    assert_eq!(root.commit(), []);
    dir
}

/// Runs a program of APT on the tree. None where it is not installed.
fn apt(tree: &Path, words: &[&str]) -> Option<Output> {
    let program = Path::new("/usr/bin").join(words[0]);
    if !program.exists() {
        skip(format!("{} is not installed", words[0]));
        return None;
    }
    // Read first, so that even APT's own configuration is the tree's.
    let conf = tree.join("apt-test.conf");
    let text = format!(
        "Dir \"{0}\";\nDir::State::status \"{0}/var/lib/dpkg/status\";\nDir::Bin::methods \"/usr/lib/apt/methods\";\n\
         APT::Sandbox::User \"root\";\nAPT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\nAcquire::Languages \"none\";\n",
        tree.display()
    );
    std::fs::write(&conf, text).expect("written");
    let output = Command::new(program).args(&words[1..]).env("APT_CONFIG", &conf).env("LC_ALL", "C").output();
    Some(output.expect("a program"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn apt_finds_the_sources_and_the_settings() {
    let tree = provisioned(
        "apt-sources",
        "apt:\n  primary: [{arches: [default], uri: 'http://m.example/debian'}]\n\
         \x20 security: [{arches: [amd64], uri: 'http://s.example/security/'}]\n\
         \x20 disable_suites: [backports]\n  http_proxy: http://p.example:3128\n  https_proxy: http://q.example:3128\n\
         \x20 conf: 'APT { Get { Assume-Yes \"true\"; } }'\n  sources:\n\
         \x20   one: {source: 'deb [arch=amd64] http://one.example $RELEASE contrib'}\n\
         \x20   two.sources: {source: \"Types: deb\\nURIs: $MIRROR\\nSuites: $RELEASE-proposed\\nComponents: main\"}\n\
         \x20   three: {source: 'deb http://three.example ./', filename: two-lines.list}\n\
         \x20   four: {source: 'deb http://four.example x y', filename: two-lines.list}\n",
    );
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let Some(found) =
        apt(&tree.0, &["apt-get", "indextargets", "--no-release-info", "--format", format, "Created-By: Packages"])
    else {
        return;
    };
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert_eq!(text(&found.stderr), "", "APT has nothing to say about the files");
    let mut lines: Vec<String> = text(&found.stdout).lines().map(|l| l.trim_end().to_owned()).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(
        lines,
        [
            "http://four.example/ x y",
            "http://m.example/debian/ trixie main",
            "http://m.example/debian/ trixie-proposed main",
            "http://m.example/debian/ trixie-updates main",
            "http://one.example/ trixie contrib",
            "http://s.example/security/ trixie-security main",
            "http://three.example/ ./ $(COMPONENT)",
        ]
    );
    let settings = apt(&tree.0, &["apt-config", "dump"]).expect("it is beside apt-get");
    let settings = text(&settings.stdout);
    for line in [
        "Acquire::http::Proxy \"http://p.example:3128\";",
        "Acquire::https::Proxy \"http://q.example:3128\";",
        "APT::Get::Assume-Yes \"true\";",
    ] {
        assert!(settings.lines().any(|l| l == line), "{line}: {settings}");
    }
}

/// Runs gpg with a keyring of its own. None where it is not installed.
fn gpg(home: &Path, words: &[&str]) -> Option<Output> {
    if !Path::new("/usr/bin/gpg").exists() {
        skip("gpg is not installed");
        return None;
    }
    let output =
        Command::new("/usr/bin/gpg").args(["--batch", "--yes", "--quiet"]).args(words).env("GNUPGHOME", home).output();
    let output = output.expect("a program");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(output)
}

#[test]
fn apt_accepts_repository_signed_with_the_key() {
    let work = TempDir::new("apt-repository");
    let home = work.0.join("gnupg");
    let repository = work.0.join("repository");
    std::fs::create_dir_all(&repository).expect("a folder");
    std::fs::create_dir(&home).expect("a folder");
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("a mode");
    let key = |name: &str| {
        gpg(&home, &["--passphrase", "", "--quick-generate-key", name, "rsa3072", "sign", "never"])?;
        Some(text(&gpg(&home, &["--armor", "--export", name])?.stdout))
    };
    let (Some(own), Some(other)) = (key("own@example.com"), key("other@example.com")) else { return };
    let package = "Package: hello\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@example.com>\nDescription: x\nFilename: ./hello.deb\nSize: 1\n\
                   SHA256: 0000000000000000000000000000000000000000000000000000000000000000\n";
    std::fs::write(repository.join("Packages"), package).expect("written");
    let sum = Command::new("sha256sum").arg(repository.join("Packages")).output().expect("a program");
    let sum = text(&sum.stdout).split(' ').next().unwrap_or_default().to_owned();
    let date = text(&Command::new("date").args(["-Ru"]).output().expect("a program").stdout);
    let release = format!("Origin: test\nSuite: stable\nDate: {date}SHA256:\n {sum} {} Packages\n", package.len());
    let path = repository.join("Release");
    std::fs::write(&path, release).expect("written");
    let signed = repository.join("InRelease");
    let words = [
        "--local-user",
        "own@example.com",
        "--clearsign",
        "--output",
        signed.to_str().expect("UTF-8"),
        path.to_str().expect("UTF-8"),
    ];
    gpg(&home, &words);
    let _ = Command::new("gpgconf").args(["--kill", "all"]).env("GNUPGHOME", &home).status();

    for (key, accepted) in [(own, true), (other, false)] {
        let indented = key.replace('\n', "\n        ");
        let config = format!(
            "apt:\n  sources:\n    local.list:\n      source: deb file:{} ./\n      key: |\n        {indented}\n",
            repository.display()
        );
        let tree = provisioned("apt-signed", &config);
        let Some(updated) = apt(&tree.0, &["apt-get", "update", "-o", "APT::Update::Error-Mode=any"]) else { return };
        assert_eq!(updated.status.success(), accepted, "{} {}", text(&updated.stdout), text(&updated.stderr));
        let shown = apt(&tree.0, &["apt-cache", "policy", "hello"]).expect("it is beside apt-get");
        assert_eq!(text(&shown.stdout).contains("Candidate: 1"), accepted, "{}", text(&shown.stdout));
    }
}
