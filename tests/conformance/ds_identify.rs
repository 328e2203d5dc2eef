//! ds-identify's answers, case by case.

use crate::cases::{Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::base::testing::TempDir;
use prepivot::detect::{Facts, Filesystem, Guestinfo, Kernel, Platform, Report, identify};
use prepivot::document::{Map, Value, json};
use prepivot::machine::Machine;
use prepivot::root::{Root, Use};
use prepivot::source::candidates;
use prepivot::stage::image::Image;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The parts of a case that are no files.
#[derive(Default)]
struct Mocks {
    virt: String,
    kernel: Kernel,
    environment: BTreeMap<String, String>,
    filesystems: Vec<Filesystem>,
    guestinfo: Option<BTreeMap<String, String>>,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    fs::write(path, content).expect("a file");
}

/// Every DMI value that a tool is said to answer with.
fn dmi(root: &Path, value: &str) {
    for field in ["sys_vendor", "product_name", "product_serial", "product_uuid", "chassis_asset_tag", "board_name"] {
        write(root, &format!("sys/class/dmi/id/{field}"), &format!("{value}\n"));
    }
}

/// `blkid -o export`.
fn filesystems(out: &str) -> Vec<Filesystem> {
    let mut all: Vec<Filesystem> = Vec::new();
    for (key, value) in out.lines().filter_map(|l| l.split_once('=')) {
        if key == "DEVNAME" {
            all.push(Filesystem { device: value.into(), ..Filesystem::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        match key {
            "TYPE" => last.kind = value.into(),
            "LABEL" | "LABEL_FATBOOT" => last.labels.push(value.into()),
            "UUID" => last.uuid = Some(value.into()),
            _ => {}
        }
    }
    all
}

/// FreeBSD's `geom label status -as`: `iso9660/cidata N/A vtbd2`.
fn geom(out: &str) -> Vec<Filesystem> {
    let line = |l: &str| {
        let mut words = l.split_whitespace();
        let (kind, label) = words.next()?.split_once('/')?;
        let device = format!("/dev/{}", words.last()?);
        Some(Filesystem { device, kind: kind.into(), labels: vec![label.into()], uuid: None })
    };
    out.lines().filter_map(line).collect()
}

/// What a replaced function of the script answered, as the fact that it represents. An error for one that is not known.
fn mock(case: &Value, mock: &Value, root: &Path, mocks: &mut Mocks) -> Result<(), String> {
    let (name, out, ret) = (text(mock, "name"), text(mock, "out"), text(mock, "RET"));
    let succeeds = mock.get("ret").and_then(Value::as_int) == Some(0);
    match name {
        "detect_virt" => mocks.virt = ret.into(),
        "detect_virt_env" => drop(mocks.environment.insert("SYSTEMD_VIRTUALIZATION".into(), ret.into())),
        "uname" => {
            let words: Vec<&str> = out.split_whitespace().collect();
            let machine = words.last().map(|m| m.to_string()).unwrap_or_default();
            mocks.kernel = Kernel { version: words[1..words.len() - 1].join(" "), machine };
        }
        "blkid" => mocks.filesystems = filesystems(out),
        "geom" => mocks.filesystems = geom(out),
        "is_ibm_provisioning" => {
            let path = "root/provisioningConfiguration.cfg";
            match succeeds {
                true => write(root, path, "x\n"),
                false => drop(fs::remove_file(root.join(path))),
            }
        }
        "is_socket_file" if succeeds => {
            fs::create_dir_all(root.join("dev/lxd")).expect("a folder");
            std::os::unix::net::UnixListener::bind(root.join("dev/lxd/sock")).expect("a socket");
        }
        "dmi_decode" | "get_kenv_field" | "get_sysctl_field" if succeeds => dmi(root, ret),
        "vmware_has_rpctool" | "vmware_has_vmtoolsd" if succeeds => _ = mocks.guestinfo.get_or_insert_default(),
        "ovf_vmware_transport_guestinfo" | "vmware_guestinfo_ovfenv" | "vmware_guestinfo_ovfenv_err" if succeeds => {
            let content = if out.is_empty() { "<?xml version=\"1.0\"?>" } else { out };
            mocks.guestinfo.get_or_insert_default().insert("ovfEnv".into(), content.into());
        }
        "vmware_has_envvar_vmx_guestinfo" if succeeds => {
            mocks.environment.insert("VMX_GUESTINFO".into(), "1".into());
        }
        "WSL_path" => {
            let instance = ret.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            mocks.environment.insert("WSL_DISTRO_NAME".into(), instance.into());
        }
        // The file itself is not among the case's: what the script says about it tells which it was.
        "WSL_profile_dir" if succeeds => {
            let lines = case.at(&["expect", "stderr_tail"]).and_then(Value::as_list).unwrap_or_default();
            for line in lines.iter().filter_map(Value::as_str) {
                if let Some((_, path)) = line.split_once(" at: @TMP@/") {
                    write(root, &format!("mnt/c/Users/me/{path}"), "#cloud-config\n");
                }
            }
        }
        "WSL_run_cmd" => {}
        _ if name.starts_with("vmware_guestinfo_") => {
            // Without a tool it is never asked.
            if succeeds && let Some(values) = &mut mocks.guestinfo {
                values.insert(name["vmware_guestinfo_".len()..].into(), "x".into());
            }
        }
        _ if name.starts_with("vmware_has_envvar_vmx_guestinfo_") => {
            if succeeds {
                let key = name["vmware_has_envvar_".len()..].to_ascii_uppercase();
                mocks.environment.insert(key, "x".into());
            }
        }
        _ if !succeeds => {}
        _ => return Err(format!("the test does not know the mock {name}")),
    }
    Ok(())
}

/// Makes the case's tree, and asks.
fn run(case: &Value, dir: &Path) -> Result<Report, String> {
    let kernel = Kernel { version: "4.4.0-62-generic".into(), machine: "x86_64".into() };
    let mut mocks = Mocks { virt: "none".into(), kernel, ..Mocks::default() };
    for (path, content) in case.get("files").and_then(Value::as_map).expect("files").iter() {
        let content = content.as_str().expect("text");
        // The script's test replaces Debian's file, which has no list.
        write(dir, path, content.replace("@DEFAULT_CLOUD_CONFIG@", "disable_root: true\n").as_str());
    }
    // The script's own variable for the kernel command line.
    let told = case.at(&["files", "ds-identify-env"]).and_then(Value::as_str).unwrap_or_default();
    if let Some(cmdline) = told.lines().find_map(|l| l.strip_prefix("DI_KERNEL_CMDLINE=")) {
        write(dir, "proc/cmdline", cmdline.trim_matches('"'));
    }
    let environment = case.get("env").and_then(Value::as_map).expect("an environment");
    for (key, value) in environment.iter() {
        mocks.environment.insert(key.into(), value.as_str().expect("text").into());
    }
    // Whether there are tools comes before what they say.
    let all = case.get("mocks").and_then(Value::as_list).expect("mocks");
    let (tools, others): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|m| text(m, "name").starts_with("vmware_has_"));
    for m in tools.into_iter().chain(others) {
        mock(case, m, dir, &mut mocks)?;
    }
    if let Some((_, virt)) = mocks.environment.get("SYSTEMD_VIRTUALIZATION").and_then(|v| v.split_once(':')) {
        mocks.virt = virt.into();
    }
    // Where a case replaces the built-in policy, ds-identify's own configuration says the same.
    let pc = mocks.kernel.machine.ends_with("86") || mocks.kernel.machine == "x86_64";
    let other = case.get("other").expect("others");
    let policy = text(other, if pc { "policy_dmi" } else { "policy_no_dmi" });
    let mut settings = fs::read_to_string(dir.join("etc/cloud/ds-identify.cfg")).unwrap_or_default();
    if !policy.is_empty() && !settings.contains("policy:") {
        settings = format!("policy: {policy}\n{settings}");
    }
    if let Some(strict_id) = other.get("ec2_strict_id").and_then(Value::text) {
        settings += &format!("\nci.datasource.ec2.strict_id: {strict_id}\n");
    }
    write(dir, "etc/cloud/ds-identify.cfg", &settings);
    let root = Root::open(dir, Use::Plan).map_err(|e| e.to_string())?;
    let machine = Machine::read(dir);
    let image = Image::read(&root, &machine, &prepivot::base::problem::Problems::new());
    let Mocks { virt, kernel, environment, filesystems, guestinfo } = mocks;
    let guestinfo = guestinfo.map(|values| Guestinfo::new(move |key| values.get(key).cloned()));
    let platform = Platform { virt, kernel, environment, filesystems, guestinfo };
    Ok(identify(&Facts::new(&machine, &root, &image.own, platform), &candidates()))
}

/// The exit code and the written configuration, as one comparable text.
fn answer(exit_code: i64, run_config: &Value) -> String {
    // A file with a comment alone counts as no configuration.
    let config = if run_config.as_map().is_some_and(Map::is_empty) { &Value::Null } else { run_config };
    format!("{exit_code} {}", json::to_string(config))
}

fn check(case: &Value) -> Outcome {
    let dir = TempDir::new("di");
    let expected = case.get("expect").expect("an expectation");
    let rc = expected.get("rc").and_then(Value::as_int).expect("an exit code");
    let theirs = answer(rc, expected.get("run_cloud_cfg").unwrap_or(&Value::Null));
    let ours = run(case, &dir.0).map_or_else(|e| e, |r| answer(r.outcome.exit_code().into(), &r.run_config));
    match ours == theirs {
        true => Outcome::Agrees,
        false => Outcome::Differs(vec![format!("expected {theirs}, got {ours}")]),
    }
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "ds_identify.json", exceptions: &[], kinds: &[] }.trials(check)
}
