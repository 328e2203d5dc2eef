//! # spacewalk
//!
//! Installs rhn-setup and registers the machine with a Spacewalk server, unless it is registered.
//!
//! ```yaml
//! spacewalk:
//!   server: spacewalk.example.com
//!   proxy: proxy.example.com:3128
//!   activation_key: <key>
//! ```
//!
//! ```schema
//! spacewalk: {server, proxy, activation_key: str}
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::hostname::Name;
use crate::system::{ModuleContext, packages};

const PACKAGE: &str = "rhn-setup";
const CA_FILE: &str = "/usr/share/rhn/RHN-ORG-TRUSTED-SSL-CERT";

pub static MODULE: Module = Module {
    name: "spacewalk",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["spacewalk"],
    distros: &["rhel", "fedora", "openeuler"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("spacewalk") else { return Ok(()) };
    let text = |key: &str| section.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let Some(server) = text("server") else { return Ok(()) };
    packages::install(cx, &[PACKAGE.to_owned()])?;
    match cx.root.output(Command::new(["rhn-profile-sync", "--verbose"]))?.status {
        0 => return Ok(()),
        1 => {}
        status => return Err(Error::new(format!("rhn-profile-sync ended with exit status {status}"))),
    }
    let own = cx.instance.local_hostname.clone();
    let Some(profile) = own.or_else(|| Name::of(cx).map(|n| n.fqdn)) else {
        return Err(Error::new("spacewalk: the machine is not registered: it has no name"));
    };
    let mut argv: Vec<String> = ["rhnreg_ks", "--serverUrl"].map(str::to_owned).to_vec();
    argv.extend([format!("https://{server}/XMLRPC"), "--profilename".into(), profile]);
    argv.extend(text("proxy").into_iter().flat_map(|proxy| ["--proxy".into(), proxy]));
    argv.extend(["--sslCACert", CA_FILE].map(str::to_owned));
    let key = text("activation_key");
    argv.extend(key.iter().flat_map(|key| ["--activationkey".into(), key.clone()]));
    let command = Command::new(argv);
    cx.root.run(key.into_iter().fold(command, Command::secret))
}
