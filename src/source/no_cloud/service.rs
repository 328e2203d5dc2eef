//! NoCloud over the network: the files of a seed folder at a URL (`seedfrom`, `ds=nocloud;s=http://…/`).
//!
//! Follows cloud-init's documentation, "NoCloud", "Source 2: Kernel command line" and "Runtime configuration".

use super::seed::{self, Seed};
use crate::base::error::{Error, Result};
use crate::base::percent;
use crate::drive::Files;
use crate::link::Uplink;
use crate::link::http::{Client, Redirects, Request};
use crate::machine::Machine;
use crate::source::search::Search;
use crate::source::service::{Job, limits};

/// The files of a seed; the first two have to be there.
const FILES: [&str; 4] = ["meta-data", "user-data", "vendor-data", "network-config"];
/// How often the files that a seed need not have are asked for where the server has trouble.
const OPTIONAL_TRIES: u32 = 5;

/// How a seed at a URL is asked for. None where no `seedfrom` names one, or one that is neither http nor https: that is a problem.
pub fn job(search: &mut Search) -> Option<Job> {
    let (seed, from) = seed::remote(search)?;
    let from = substituted(&from, search.machine);
    if !from.starts_with("http://") && !from.starts_with("https://") {
        search.problem("NoCloud: seedfrom: expected a URL of http or https, or an absolute path".into());
        return None;
    }
    let fetch = move |client: &Client, url: &str| Ok(fetch(client, seed.clone(), url)?.finish("DataSourceNoCloudNet"));
    let urls = move |uplink: &Uplink| if uplink.reaches(&from) { vec![from.clone()] } else { Vec::new() };
    let (urls, fetch, limits) = (Box::new(urls), Box::new(fetch), limits(search, super::marks::NAME));
    Some(Job { name: super::marks::NAME, replaces_drive: true, urls, fetch, redirects: Redirects::Any, limits })
}

/// Fetches the seed at `from`: meta-data first, and once it shows that a server answers, the others in parallel.
///
/// # Errors
///
/// No answer, or no meta-data or user-data there. Other files that fail are problems of the seed.
pub fn fetch(client: &Client, mut seed: Seed, from: &str) -> Result<Seed> {
    let [(meta_data, user_data), others] = [(FILES[0], FILES[1]), (FILES[2], FILES[3])];
    let get = |name: &str, tries: u32| client.document(&Request { tries, ..Request::get(&file_url(from, name)) });
    let missing = |name: &str| Error::new(format!("there is no {name} at {}", plain(from)));
    let mut files = Files::default();
    files.insert(meta_data, get(meta_data, u32::MAX)?.ok_or_else(|| missing(meta_data))?);
    let mut problems = Vec::new();
    let user_data = std::thread::scope(|scope| {
        let get = &get;
        let threads = [others.0, others.1].map(|name| (name, scope.spawn(move || get(name, OPTIONAL_TRIES))));
        let first = get(user_data, u32::MAX).and_then(|body| body.ok_or_else(|| missing(user_data)));
        for (name, thread) in threads {
            match thread.join() {
                Ok(Ok(Some(body))) => files.insert(name, body),
                Ok(Ok(None)) => {}
                Ok(Err(e)) => problems.push(format!("{e}; the boot goes on without it")),
                Err(_) => problems.push(format!("{name}: failed to read it")),
            }
        }
        first
    });
    files.insert(FILES[1], user_data?);
    seed.take_files(&files, plain(from));
    seed.problems.extend(problems);
    Ok(seed)
}

/// The URL of one file: `%s` is replaced by its name; otherwise the name goes to the end, after a slash if none is there. A URL
/// with a query gets the name as it is.
fn file_url(from: &str, name: &str) -> String {
    if from.contains("%s") {
        return from.replace("%s", name);
    }
    let slash = if from.ends_with('/') || from.contains('?') { "" } else { "/" };
    format!("{from}{slash}{name}")
}

/// `seedfrom` with each `__dmi.KEY__` replaced by the machine's value; keys are dmidecode's (`system-uuid`) or the kernel's
/// (`product_uuid`). One that the machine lacks becomes nothing.
fn substituted(from: &str, machine: &Machine) -> String {
    let mut out = String::new();
    let mut rest = from;
    while let Some((before, after)) = rest.split_once("__dmi.") {
        out.push_str(before);
        let Some((key, tail)) = after.split_once("__") else {
            out.push_str("__dmi.");
            rest = after;
            continue;
        };
        let known = DMIDECODE.iter().find(|(name, _)| *name == key).map_or(key, |(_, file)| file);
        out.push_str(&percent::encode(&machine.dmi(known).unwrap_or_default(), percent::ALL));
        rest = tail;
    }
    out + rest
}

/// dmidecode's keywords (dmidecode(8)) and the kernel's files for them.
const DMIDECODE: [(&str, &str); 17] = [
    ("baseboard-asset-tag", "board_asset_tag"),
    ("baseboard-manufacturer", "board_vendor"),
    ("baseboard-product-name", "board_name"),
    ("baseboard-serial-number", "board_serial"),
    ("baseboard-version", "board_version"),
    ("bios-release-date", "bios_date"),
    ("bios-vendor", "bios_vendor"),
    ("bios-version", "bios_version"),
    ("chassis-asset-tag", "chassis_asset_tag"),
    ("chassis-manufacturer", "chassis_vendor"),
    ("chassis-serial-number", "chassis_serial"),
    ("chassis-version", "chassis_version"),
    ("system-manufacturer", "sys_vendor"),
    ("system-product-name", "product_name"),
    ("system-serial-number", "product_serial"),
    ("system-uuid", "product_uuid"),
    ("system-version", "product_version"),
];

/// For messages: without query and credentials.
fn plain(from: &str) -> &str {
    let end = from.find(['?', '#']).unwrap_or(from.len());
    let start = from.find('@').filter(|at| from.get(..*at).is_some_and(|b| b.matches('/').count() == 2));
    from.get(start.map_or(0, |at| at + 1)..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn where_a_file_is() {
        assert_eq!(file_url("http://h/seed/", "meta-data"), "http://h/seed/meta-data");
        assert_eq!(file_url("http://h/seed", "user-data"), "http://h/seed/user-data");
        assert_eq!(file_url("http://h/?file=", "user-data"), "http://h/?file=user-data");
        assert_eq!(file_url("http://h/%s.yaml", "user-data"), "http://h/user-data.yaml");
    }

    #[test]
    fn dmi_values_stand_in() {
        let dir = TempDir::new("nocloud");
        let dmi = dir.0.join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        std::fs::write(dmi.join("product_serial"), "AB/1 2\n").unwrap();
        std::fs::write(dmi.join("product_uuid"), "u-u\n").unwrap();
        let machine = Machine::read(&dir.0);
        let from = "http://h/__dmi.system-uuid__/__dmi.product_serial__/__dmi.board_name__/";
        assert_eq!(substituted(from, &machine), "http://h/u-u/AB%2F1%202//");
        assert_eq!(substituted("http://h/__dmi.x", &machine), "http://h/__dmi.x");
    }

    #[test]
    fn messages_hold_no_secret() {
        assert_eq!(plain("http://user:pw@h/seed/?token=x"), "h/seed/");
        assert_eq!(plain("http://h/a@b/"), "http://h/a@b/");
    }
}
