//! OpenStack: nova's metadata service, and the config drive with the same documents.

pub mod config_drive;
pub mod files;
mod marks;
mod password;
mod service;

use super::closed::{Closing, ServiceAddress};
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, limits, list_setting, switched_off};
use super::table::Source;
use crate::base::error::Error;
use crate::drive::Files;
use crate::link::Uplink;
use crate::link::http::Client;
use crate::machine::{Machine, beneath};

pub static SOURCE: Source = Source {
    name: marks::SERVICE,
    described: "[{mode},ver=2]",
    marks: marks::SERVICE_MARKS,
    service: Some(service_job),
    provisioned: Some(password::provisioned),
    labels_disks: true,
    closing: Closing {
        addresses: &[ServiceAddress::whole("169.254.169.254"), ServiceAddress::whole("fe80::a9fe:a9fe")],
        stays: "DNS and DHCP of the network, which have addresses of their own",
    },
    settings: &[
        ("metadata_urls", "addresses of the service, instead of the well-known ones"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
        ("apply_network_config", "false: DHCP on the first link instead of network_data.json"),
    ],
    docs: "OpenStack's metadata service. Read from http://169.254.169.254 and http://[fe80::a9fe:a9fe] on every link, whichever \
        answers first, or from metadata_urls. OpenStack's layout, latest included; an answer must be OpenStack's, not any 200. Where nova attached a config drive, the drive is read and the service is not asked. A random password of the default user (chpasswd: {users: [{name: USER, type: RANDOM}]}) is posted to the service, encrypted for the instance's RSA key, where the system has openssl and ssh-keygen; nova get-password shows it.",
    ..Source::NEW
};

fn service_job(search: &mut Search) -> Option<Job> {
    let configured = list_setting(search, SOURCE.name, "metadata_urls");
    let disks = disks(search.machine) > 1;
    let uuid = search.machine.uuid();
    let without_network = switched_off(search, SOURCE.name, "apply_network_config");
    let fetch = move |client: &Client, base: &str| {
        let fetched = service::fetch(client, base, disks)?;
        let mut tree = Files::default();
        tree.keep(client.taken());
        fetched.files.into_iter().for_each(|(path, content)| tree.insert(path, content));
        if let Some(json) = fetched.ec2_metadata {
            tree.insert_made(service::EC2_METADATA, json);
        }
        let read = files::read(&tree).ok_or_else(|| Error::new(format!("{base} has no OpenStack metadata")));
        let mut instance = read?;
        instance.problems.absorb(fetched.problems);
        instance.source = SOURCE.name.into();
        instance.class = "DataSourceOpenStackLocal".into();
        instance.subplatform = format!("metadata ({})", fetched.base);
        if without_network {
            instance.network = None;
        }
        if instance.instance_id.is_empty() {
            instance.instance_id = uuid.clone().unwrap_or_else(|| "iid-dsopenstack".into());
        }
        Ok(Found { instance, place: fetched.base })
    };
    let urls = move |uplink: &Uplink| service::urls(uplink, &configured);
    Some(Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name)))
}

/// The number of disks: a source's device names only matter if there are several.
fn disks(machine: &Machine) -> usize {
    const NO_DISKS: [&str; 8] = ["loop", "ram", "zram", "sr", "fd", "nbd", "dm-", "md"];
    let is_disk = |name: &String| {
        let size = machine.fact(&format!("sys/block/{name}/size")).unwrap_or_default();
        !NO_DISKS.iter().any(|p| name.starts_with(p)) && size.trim() != "0"
    };
    beneath::names(&machine.base, "sys/block").iter().filter(|name| is_disk(name)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::{Raw, Taken, Value};
    use crate::instance::Instance;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use crate::root::Use;
    use std::sync::Arc;
    use std::time::Duration;

    /// What a service's answers make on a machine with these disks, and its documents as they came.
    fn fetched(script: Script, disks: &[&str]) -> (Instance, Raw) {
        let dir = TempDir::new("openstack-raw");
        disks.iter().for_each(|disk| dir.write(&format!("sys/block/{disk}/size"), "100\n"));
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let deadline = Deadline::after(Duration::from_secs(60));
        let job = service_job(&mut Search::new(&machine, &root, &Value::Null, deadline)).unwrap();
        let uplink = Uplink::system();
        let client = Client::over(Arc::new(script), &uplink, Redirects::SameOrigin, deadline, &Findings::default());
        let client = client.keeping(Taken::keeping());
        let found = (job.fetch)(&client, "http://h").unwrap().instance;
        (found, client.taken().raw().unwrap())
    }

    /// What a trust policy measures of the service is what `trust predict` reads from a config drive with the same files.
    #[test]
    fn service_and_drive_have_the_same_documents() {
        let documents = [
            ("meta_data.json", r#"{"uuid": "u",  "files": [{"path": "/f", "content_path": "/content/user_data"}]}"#),
            ("network_data.json", "{\"links\": [] }\n"),
            ("vendor_data.json", "{\"cloud-init\": \"\"}"),
            ("user_data", "#cloud-config\n"),
        ];
        let (mut drive, mut script) = (Files::default(), Script::default());
        let taken = Taken::keeping();
        drive.keep(&taken);
        for (name, text) in documents {
            let path = format!("openstack/2018-08-27/{name}");
            script = script.with("GET", &format!("http://h/{path}"), Answer::new(200, text));
            drive.insert(path, text.as_bytes().to_vec());
        }
        for (path, status) in [("2018-08-27/vendor_data2.json", 404), ("content/user_data", 200)] {
            script = script.with("GET", &format!("http://h/openstack/{path}"), Answer::new(status, "F"));
        }
        drive.insert("openstack/content/user_data", b"F".to_vec());
        let (found, raw) = fetched(script, &[]);
        assert_eq!((found.instance_id.as_str(), found.files.len(), found.problems.len()), ("u", 1, 0));
        let read = files::read(&drive).unwrap();
        assert_eq!(read.files, found.files);
        assert_eq!(Some(&raw), taken.raw().as_ref());
        let [metadata, network, vendor_data, vendor_data2] = raw.0;
        assert_eq!(network.as_deref(), Some(documents[1].1.as_bytes()));
        assert_eq!((vendor_data.as_deref(), vendor_data2), (Some(documents[2].1.as_bytes()), None));
        // A file that the metadata names is part of it, whatever its name.
        let list = String::from_utf8(metadata.unwrap().to_vec()).unwrap();
        let names: Vec<&str> = list.lines().filter_map(|line| line.get(66..)).collect();
        assert_eq!(names, ["openstack/2018-08-27/meta_data.json", "openstack/content/user_data"]);
    }

    #[test]
    fn services_device_names_are_metadata_that_is_measured() {
        let answers = [
            ("openstack/2018-08-27/meta_data.json", r#"{"uuid": "u"}"#),
            ("latest/meta-data/block-device-mapping/", "ami\nswap\n"),
            ("latest/meta-data/block-device-mapping/swap", "sdb"),
        ];
        let script = answers.iter().fold(Script::default(), |script, (path, text)| {
            script.with("GET", &format!("http://h/{path}"), Answer::new(200, *text))
        });
        let (_, raw) = fetched(script, &["vda", "vdb"]);
        let list = String::from_utf8(raw.0[0].as_deref().unwrap().to_vec()).unwrap();
        let names: Vec<&str> = list.lines().filter_map(|line| line.get(66..)).collect();
        assert_eq!(names, [answers[1].0, answers[2].0, answers[0].0]);
    }

    #[test]
    fn only_disks_count() {
        let dir = TempDir::new("disks");
        for (name, size) in [("vda", "100"), ("vdb", "9"), ("sr0", "7"), ("loop0", "0"), ("sda", "0"), ("dm-0", "5")] {
            std::fs::create_dir_all(dir.0.join("sys/block").join(name)).unwrap();
            std::fs::write(dir.0.join("sys/block").join(name).join("size"), size).unwrap();
        }
        assert_eq!(disks(&dir.machine()), 2);
    }
}
