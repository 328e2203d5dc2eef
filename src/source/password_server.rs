//! The password server of CloudStack's virtual router and of Exoscale. It returns the password that the user requested
//! until the machine confirms it.
//!
//! Follows CloudStack's documentation, "Adding password management to your templates".

use super::documents::record;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::{Instance, state};
use crate::link::http::{Client, Limits, Request, refused};
use crate::source::table::Live;
use std::time::Duration;

/// How long one request may take, and how often it is sent. Short, because a missing server must not delay
/// the boot.
const TIMEOUT: Duration = Duration::from_secs(5);
const TRIES: u32 = 3;
/// The longest password.
const MAX_PASSWORD: usize = 4096;

fn request(client: &Client, url: &str, what: &str, tries: u32) -> Result<String> {
    let headers = [("DomU_Request", what)];
    let request =
        Request { headers: &headers, limit: MAX_PASSWORD, tries, timeout: Some(TIMEOUT), ..Request::get(url) };
    let reply = client.send(&request)?;
    match reply.status {
        200..=299 => Ok(String::from_utf8_lossy(&reply.body).trim().to_owned()),
        status => Err(refused("GET", url, status)),
    }
}

/// Requests a password: the configuration that sets it, if the server has one. The server keeps it until [`saved`].
///
/// # Errors
/// No response, or the server does not know the machine.
pub fn ask(client: &Client, url: &str) -> Result<Option<Value>> {
    // The image's `timeout` and `retries` are those of the metadata service.
    match request(&client.apart().limited(Limits::default()), url, "send_my_password", TRIES)?.as_str() {
        "" | "saved_password" => Ok(None),
        "bad_request" => Err(Error::new(format!("{url}: the password server knows no such machine"))),
        password => {
            let chpasswd = record(vec![("expire", false.into())]);
            let password = Value::from(password);
            Ok(Some(record(vec![("ssh_pwauth", true.into()), ("password", password), ("chpasswd", chpasswd)])))
        }
    }
}

/// Requests a password and adds it to the instance's configuration, as [`ask`] returns it.
pub fn fetch(client: &Client, url: &str, instance: &mut Instance) {
    match ask(client, url) {
        Ok(Some(config)) => instance.config = config,
        Ok(None) => {}
        Err(e) => instance.problems.warn(format!("{e}; the boot goes on without a password")),
    }
}

/// Confirms to the server that its password is on the disk, if the instance has one. It is also removed from
/// the cached instance: if the image runs `set_passwords` on every boot, that must not restore an old
/// password.
///
/// # Errors
/// No response. Then the server returns the password again.
pub fn saved(live: &mut Live, url: &str) -> Result<()> {
    if live.instance.config.get("password").is_none() {
        return Ok(());
    }
    request(live.client, url, "saved_password", u32::MAX)?;
    state::store(live.root, &Instance { config: Value::Null, ..live.instance.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::problem::Problems;
    use crate::base::testing::TempDir;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use crate::root::Use;
    use std::sync::Arc;

    const URL: &str = "http://10.1.1.1:8080/";

    /// The configuration, how many problems there are, and what was sent to the server, for this answer of it.
    fn exchange(answer: Answer) -> (Value, usize, Vec<String>) {
        let script = Arc::new(Script::default().with("GET", URL, answer));
        let deadline = Deadline::after(Duration::from_secs(100));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let mut instance = Instance::default();
        fetch(&client, URL, &mut instance);
        let dir = TempDir::new("password");
        let (machine, mut root) = (dir.machine(), dir.root(Use::Tree));
        let mut live = Live {
            root: &mut root,
            machine: &machine,
            instance: &instance,
            config: &Value::Null,
            client: &client,
            failed: None,
            public_keys: Vec::new(),
            passwords: Vec::new(),
            report: &Problems::new(),
        };
        saved(&mut live, URL).unwrap();
        drop(live.root.commit());
        let has_password = instance.config.get("password").is_some();
        assert_eq!(state::cached(live.root).map(|cached| cached.config), has_password.then_some(Value::Null));
        let told = script.sent().into_iter().flat_map(|s| s.headers).map(|(_, value)| value).collect();
        (instance.config.clone(), instance.problems.len(), told)
    }

    #[test]
    fn server_keeps_a_password_until_it_is_saved() {
        let (config, problems, told) = exchange(Answer::new(200, "s3cret\n"));
        assert_eq!(config.get("password"), Some(&Value::from("s3cret")));
        assert_eq!(config.at(&["chpasswd", "expire"]), Some(&Value::from(false)));
        assert_eq!((problems, told), (0, vec!["send_my_password".into(), "saved_password".into()]));
    }

    #[test]
    fn no_password_is_not_saved() {
        for (answer, problems) in
            [(Answer::new(200, ""), 0), (Answer::new(200, "saved_password"), 0), (Answer::new(200, "bad_request"), 1)]
        {
            assert_eq!(exchange(answer), (Value::Null, problems, vec!["send_my_password".to_owned()]));
        }
        let (config, problems, told) = exchange(Answer::Timeout);
        assert_eq!((config, problems, told.len()), (Value::Null, 1, 3));
    }
}
