//! Asks the password server of the instance's source on later boots: a password that was reset in the cloud's console takes
//! effect with a restart, as the clouds document it.

use super::boot::Boot;
use super::modules::Run;
use super::refresh::{self, UNASKED};
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::document::{Map, Value};
use crate::instance::Instance;
use crate::link::http::{Client, Redirects, Settings};
use crate::link::route;
use crate::root::Root;
use crate::source::{self, password_server};
use std::sync::Arc;

/// Sets a password that the instance's password server has for the machine since its last boot. Returns the configuration that the
/// server gave, to be confirmed once it is on the disk; None if there is none, or it could not be set.
pub fn reset(root: &mut Root, boot: &mut Boot, instance: &Instance) -> Option<Value> {
    let url = server(root, boot, instance).filter(|_| root.is_live())?;
    let given = ask(&url).unwrap_or_else(|e| {
        log::info!("whether there is a new password is not known: {e}");
        None
    })?;
    set(root, boot, instance, given)
}

/// The server to ask in this boot. None if the source has none, if the local stage has asked it with all else, or if the image
/// sets no passwords.
fn server(root: &mut Root, boot: &mut Boot, instance: &Instance) -> Option<String> {
    let server = source::named(&instance.source)?.password_server?;
    let url = server(instance, boot.config())?;
    let is_due = refresh::is_later_boot(root) && !refresh::is_due(root, boot, instance) && !refresh::is_kept(boot);
    (is_due && Run::new(root, boot, instance).lists_passwords()).then_some(url)
}

/// Asks the server, within the time that a boot has for what the user has not asked for.
fn ask(url: &str) -> Result<Option<Value>> {
    let deadline = Deadline::after(UNASKED);
    // A network that is not up yet would end the request.
    route::wait(url, deadline);
    let client = Client::system(&Settings { redirects: Redirects::SameOrigin, image: None }, deadline)?;
    password_server::ask(&client, url)
}

/// Sets the password that the server gave, and nothing else: the passwords of user-data stay as they are on the disk.
fn set(root: &mut Root, boot: &mut Boot, instance: &Instance, given: Value) -> Option<Value> {
    let whole = boot.config.take();
    let mut alone: Map = whole.as_deref().and_then(Value::as_map).cloned().unwrap_or_default();
    for (key, value) in given.as_map()?.iter() {
        // Whether sshd takes passwords is the user's choice.
        if key != "ssh_pwauth" || alone.get(key).is_none_or(Value::is_null) {
            alone.insert(key, value.clone());
        }
    }
    boot.config = Some(Arc::new(Value::Map(alone)));
    let failed = Run::new(root, boot, instance).set_passwords();
    boot.config = whole;
    failed.is_none().then_some(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::password;
    use crate::base::testing::TempDir;
    use crate::machine::Machine;
    use crate::root::Use;
    use crate::root::run_dir::{LocalResult, LocalStage, Origin, Record};
    use crate::stage::testing;
    use std::io::{Read, Write};

    const LISTED: &str = "cloud_init_modules: [set-passwords]";

    #[test]
    fn server_is_asked_on_later_boots_alone() {
        let asked = |source: &str, subplatform: &str, config: &str, read: bool| {
            let dir = TempDir::new("password-server");
            let (mut root, machine) = (dir.root(Use::Tree), Machine::default());
            let origin = if read { Origin::New } else { Origin::Kept };
            let result = LocalResult::Provisioned(origin, ());
            LocalStage { start: 0.0, finished: 0.0, result }.write(&mut root).unwrap();
            let mut boot = testing::boot_with(&root, &machine, config);
            let instance = Instance { source: source.into(), subplatform: subplatform.into(), ..Instance::default() };
            server(&mut root, &mut boot, &instance)
        };
        let exoscale = |config: &str| asked("Exoscale", "metadata (http://169.254.169.254/1.0)", config, false);
        assert_eq!(exoscale(LISTED).as_deref(), Some("http://169.254.169.254:8080/1.0/"));
        let own = format!(
            "{LISTED}\ndatasource: {{Exoscale: {{metadata_url: 'http://10.0.0.1', password_server_port: 81}}}}"
        );
        assert_eq!(exoscale(&own).as_deref(), Some("http://10.0.0.1:81/1.0/"));
        let router = "metadata (http://10.1.1.1/)";
        assert_eq!(asked("CloudStack", router, LISTED, false).as_deref(), Some("http://10.1.1.1:8080/"));
        assert_eq!(asked("CloudStack", "seed-dir (/var/lib/cloud/seed/cs)", LISTED, false), None);
        assert_eq!(asked("Ec2", router, LISTED, false), None);
        assert_eq!(asked("CloudStack", router, LISTED, true), None, "the local stage asked");
        for config in [
            "cloud_init_modules: [ssh]",
            &format!("{LISTED}\nmanual_cache_clean: true"),
            // The instance is read again, with its password.
            &format!("{LISTED}\nupdates: {{network: {{when: [boot]}}}}"),
        ] {
            assert_eq!(exoscale(config), None, "{config}");
        }
    }

    #[test]
    fn sets_what_the_server_gives_and_nothing_else() {
        let dir = TempDir::new("password-reset");
        dir.write("etc/os-release", "ID=debian\n");
        dir.write("etc/passwd", "debian:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n");
        dir.write("etc/shadow", "debian:old:1:0:99999:7:::\nbob:own:1:0:99999:7:::\n");
        dir.write("etc/group", "");
        dir.write("etc/ssh/sshd_config", "");
        let machine = Machine::default();
        let mut root = dir.root(Use::Tree);
        let instance = Instance { source: "Exoscale".into(), from_network: true, ..Instance::default() };
        let mut run = |config: &str, answer: &str| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/1.0/", listener.local_addr().unwrap());
            let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
            let served = std::thread::spawn(move || {
                let (mut connection, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let len = connection.read(&mut head).unwrap();
                connection.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&head[..len]).to_ascii_lowercase()
            });
            let given = ask(&url).unwrap();
            assert!(served.join().unwrap().contains("domu_request: send_my_password"));
            let mut boot = testing::boot_with(&root, &machine, config);
            let before = boot.config.clone();
            let set = given.and_then(|given| set(&mut root, &mut boot, &instance, given));
            assert_eq!((boot.config, boot.report.has(crate::base::problem::Severity::Warning)), (before, false));
            let shadow = root.text("/etc/shadow");
            let of = |user: &str| {
                let line = shadow.lines().find(|l| l.starts_with(user)).unwrap();
                line.split(':').skip(1).take(2).map(str::to_owned).collect::<Vec<_>>()
            };
            let logins = root.text("/etc/ssh/sshd_config").lines().any(|l| l == "PasswordAuthentication yes");
            (set.is_some(), of("debian"), of("bob"), logins, boot.report.errors().len())
        };
        let user_data = "{cloud_init_modules: [set_passwords], users: [default], password: first, ssh_pwauth: false, \
             system_info: {default_user: {name: debian}}, chpasswd: {expire: true, users: [{name: bob, password: $6$a$b}]}}";
        let (set, debian, bob, logins, errors) = run(user_data, "saved_password");
        assert_eq!((set, debian[0].as_str(), logins, errors), (false, "old", false, 0));
        assert_eq!(bob, ["own", "1"]);
        let (set, debian, bob, logins, errors) = run(user_data, "new: secret");
        assert!(set && password::verify("new: secret", &debian[0]) && debian[1] != "0", "{debian:?}");
        assert_eq!((bob.as_slice(), logins, errors), (&["own".to_owned(), "1".to_owned()][..], false, 0));
        let (set, .., logins, _) = run(&user_data.replace("ssh_pwauth: false, ", ""), "other");
        assert!(set && logins);
        // It is not confirmed, and asked for again.
        let (set, .., errors) = run(&user_data.replace("name: debian", "name: nobody-here"), "lost");
        assert_eq!((set, errors), (false, 1));
    }
}
