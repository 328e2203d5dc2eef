//! The root's service manager.

use super::{ModuleContext, WebRequest};
use crate::base::error::Result;
use crate::machine::{Distro, Family};
use crate::root::{Attr, Command, Root, Stage, run_dir};
use std::time::Duration;

/// An action on a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start,
    Stop,
    /// Starts it on every boot, from the next one on.
    Enable,
    Restart,
    /// Reload it; restart it if it cannot reload, and start it if it is not running.
    Reload,
    /// Reload it if it runs. systemd restarts a service that cannot reload; without systemd it is restarted,
    /// as by cloud-init.
    TryReload,
    /// Make it read its configuration again if it runs, while it keeps accepting connections.
    ReadAgain,
}

/// Whether the root has systemd, running or not.
pub fn has_systemd(root: &Root) -> bool {
    ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].iter().any(|path| root.exists(path))
}

/// Whether the root's service manager is systemd. For a root without any init, the distribution decides.
pub fn uses_systemd(root: &Root, distro: &Distro) -> bool {
    if has_systemd(root) {
        return true;
    }
    !["/sbin/init", "/usr/sbin/init", "/sbin/openrc-run"].iter().any(|p| root.exists(p))
        && distro.family != Family::Alpine
}

/// Asks the service manager to carry out `action` on `service`. systemd is not waited for: a service may be
/// ordered after the stage that asks, and would never start.
///
/// # Errors
/// The service manager refuses or is missing.
pub fn manage(cx: &mut ModuleContext, action: Action, service: &str) -> Result<()> {
    let argv: Vec<&str> = if uses_systemd(cx.root, cx.distro) {
        let verb = match action {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Enable => "enable",
            Action::Restart => "restart",
            Action::Reload => "reload-or-restart",
            Action::TryReload | Action::ReadAgain => "try-reload-or-restart",
        };
        // If a stop were not waited for, a following start would replace its job.
        let block: &[&str] = if action == Action::Stop { &[] } else { &["--no-block"] };
        ["systemctl"].iter().chain(block).chain(&[verb, service]).copied().collect()
    } else if cx.distro.family == Family::Alpine || cx.root.exists("/sbin/openrc-run") {
        match action {
            Action::ReadAgain => vec!["rc-service", "--nocolor", "--ifstarted", service, "reload"],
            Action::Start => vec!["rc-service", "--nocolor", service, "start"],
            Action::Stop => vec!["rc-service", "--nocolor", service, "stop"],
            Action::Enable => vec!["rc-update", "--nocolor", "add", service],
            _ => vec!["rc-service", "--nocolor", service, "restart"],
        }
    } else {
        let verb = match action {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Enable => "enable",
            Action::ReadAgain => "reload",
            Action::Restart | Action::Reload | Action::TryReload => "restart",
        };
        vec!["service", service, verb]
    };
    cx.root.run(Command::new(argv))
}

/// The longest that a stage waits for the network. Then the work that needs it fails and is reported.
const NETWORK: Duration = Duration::from_secs(180);

/// Network managers whose links come up after they have started, and their services that wait for that. Others have started
/// when their links are up.
const WAITS: [(&str, &str); 2] = [
    ("systemd-networkd.service", "systemd-networkd-wait-online.service"),
    ("NetworkManager.service", "NetworkManager-wait-online.service"),
];

/// Waits until the network is up, once in a boot whether or not it comes up. It waits for
/// network-online.target, which the stages' units want without being ordered after it, so that only work that
/// needs the network waits. The network stage comes before that target, and waits for the network managers themselves. Without
/// systemd the stages are started when the network is up.
pub fn wait_for_network(cx: &mut ModuleContext) {
    // The folder alone may be left over from an initramfs with systemd.
    let by_systemd = uses_systemd(cx.root, cx.distro) && cx.root.is_dir("/run/systemd/system");
    if !cx.root.runs_commands() || !by_systemd || cx.root.exists(run_dir::NETWORK_AWAITED) {
        return;
    }
    let units: Vec<&str> = match cx.root.current_stage() {
        Stage::Local | Stage::Network => {
            let mut of_active = Vec::new();
            for (manager, waits) in WAITS {
                let is_masked =
                    cx.root.read_link(&format!("/etc/systemd/system/{waits}")).as_deref() == Some("/dev/null");
                let is_active = Command::new(["systemctl", "is-active", "--quiet", manager]);
                if !is_masked && cx.root.run(is_active).is_ok() {
                    of_active.push(waits);
                }
            }
            of_active
        }
        _ => vec!["network-online.target"],
    };
    if !units.is_empty() {
        let argv = ["systemctl", "start"].into_iter().chain(units);
        if let Err(e) = cx.root.run(Command::new(argv).limit(NETWORK)) {
            cx.report.warn(format_args!("the network may not be up: {e}"));
        }
    }
    let noted = cx.root.write(run_dir::NETWORK_AWAITED, "", Attr::root(0o600));
    cx.report.keep(noted);
}

/// Sends a request when the network is up, up to `tries` times, and returns the body of the response. A plan records the request
/// and sends nothing: None.
///
/// # Errors
/// There is no response, or none that is a success.
pub fn send(cx: &mut ModuleContext, request: &WebRequest, tries: u32) -> Result<Option<Vec<u8>>> {
    if cx.root.is_plan() {
        cx.root.plan_request(request.method, &request.url);
        return Ok(None);
    }
    wait_for_network(cx);
    cx.outside.http(request, tries).map(Some)
}

/// The longest that [`control`] waits for a service.
const SERVICE: Duration = Duration::from_secs(180);

/// Has the service manager do `verb` (enable, disable, start, stop, restart) on `service`, and waits for it.
///
/// # Errors
/// There is no such service, it fails, or it takes longer than [`SERVICE`].
pub fn control(cx: &mut ModuleContext, verb: &str, service: &str) -> Result<()> {
    let argv: Vec<&str> = if uses_systemd(cx.root, cx.distro) {
        vec!["systemctl", verb, service]
    } else if cx.distro.family == Family::Alpine || cx.root.exists("/sbin/openrc-run") {
        match verb {
            "enable" => vec!["rc-update", "--nocolor", "add", service],
            "disable" => vec!["rc-update", "--nocolor", "del", service],
            _ => vec!["rc-service", "--nocolor", service, verb],
        }
    } else {
        vec!["service", service, verb]
    };
    cx.root.run(Command::new(argv).limit(SERVICE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::testing::TempDir;
    use crate::root::{Output, Use};
    use crate::system::testing::Inputs;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_boot_waits_once_for_the_network() {
        assert_eq!(waits_and_warnings(|| Err(Error::new("a job of it failed"))), (1, 1));
        assert_eq!(waits_and_warnings(|| Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() })), (1, 0));
    }

    #[test]
    fn network_stage_waits_for_running_managers() {
        let dir = TempDir::new("network-managers");
        dir.write("usr/lib/systemd/systemd", "");
        std::fs::create_dir_all(dir.0.join("run/systemd/system")).unwrap();
        let mut root = dir.root(Use::Tree);
        let mut waited = |active: &'static str| {
            let (seen, inputs) = (Rc::new(std::cell::RefCell::new(Vec::new())), Inputs::new("debian", ""));
            let commands = seen.clone();
            root.play(Box::new(move |_, command| {
                let line = command.argv.join(" ");
                let status = i32::from(line.contains("is-active") && !line.ends_with(active));
                if line.starts_with("systemctl start ") {
                    commands.borrow_mut().push(line);
                }
                Ok(Output { status, stdout: Vec::new(), stderr: Vec::new() })
            }));
            root.enter(Stage::Network);
            wait_for_network(&mut inputs.context(&mut root));
            assert!(inputs.report.is_empty());
            root.remove(run_dir::NETWORK_AWAITED).unwrap();
            seen.take()
        };
        assert_eq!(waited("systemd-networkd.service"), ["systemctl start systemd-networkd-wait-online.service"]);
        assert_eq!(waited("NetworkManager.service"), ["systemctl start NetworkManager-wait-online.service"]);
        assert_eq!(waited("none"), [""; 0]);
    }

    /// How often two modules of each of two stages wait for the network, of which systemd says `answer`, and the warnings.
    fn waits_and_warnings(answer: fn() -> Result<Output>) -> (u32, usize) {
        let dir = TempDir::new("network");
        for folder in ["run/systemd/system", "usr/lib/systemd"] {
            std::fs::create_dir_all(dir.0.join(folder)).unwrap();
        }
        dir.write("usr/lib/systemd/systemd", "");
        let waits = Rc::new(Cell::new(0));
        let mut warnings = 0;
        // Each stage is a process of its own.
        for stage in [Stage::Config, Stage::Final] {
            let mut root = dir.root(Use::Tree);
            root.enter(stage);
            let seen = waits.clone();
            root.play(Box::new(move |_, command| {
                assert_eq!(command.argv, ["systemctl", "start", "network-online.target"]);
                seen.set(seen.get() + 1);
                answer()
            }));
            let inputs = Inputs::new("debian", "");
            for _ in 0..2 {
                wait_for_network(&mut inputs.context(&mut root));
            }
            warnings += inputs.report.entries().len();
            assert_eq!(root.commit(), []);
        }
        (waits.get(), warnings)
    }
}
