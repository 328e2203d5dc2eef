//! WSL: data in the home folder of a Windows user.
//!
//! Follows cloud-init's documentation, "WSL". Only read in the running system: finding the Windows user needs
//! programs of Windows.

mod marks;
mod user_data;

use super::Source;
use super::keys::public_keys;
use super::search::{Found, Search};
use crate::base::error::Result;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value, wrong, yaml};
use crate::instance::Instance;
use crate::root::installed;
use std::time::Duration;
use user_data::Document;

pub static SOURCE: Source = Source {
    name: "WSL",
    marks: &[Mark::Check(
        "files for this distribution in .cloud-init or .ubuntupro/.cloud-init in a Windows user's folder",
        marks::mark,
    )],
    read: Some(read),
    docs: "Windows Subsystem for Linux: user-data in the folder .cloud-init of the Windows user's home, called after the \
        distribution (NAME.user-data, ubuntu-24.04.user-data, ubuntu-all.user-data or default.user-data, in any case), and \
        NAME.meta-data with the instance-id. On Ubuntu the files of .ubuntupro/.cloud-init take precedence: Landscape's NAME.user-data \
        and the Pro agent's agent.yaml. Read in the running system, with Windows's own programs.",
    ..Source::NEW
};

const WSLPATH: &str = "/usr/bin/wslpath";
const DEFAULT_ID: &str = "iid-datasource-wsl";
/// How long a Windows program may take.
const TIME: Duration = Duration::from_secs(30);

/// Reads the data for this distribution.
fn read(search: &mut Search) -> Result<Option<Found>> {
    if !search.tools.can_run() || search.root.stat(WSLPATH).is_none() || !search.first_time(SOURCE.name) {
        return Ok(None);
    }
    let Some((name, home)) = instance_name(search).zip(home(search)) else {
        search.reason("WSL: neither the distribution's name nor the Windows user's folder is known".into());
        return Ok(None);
    };
    let Some(metadata) = metadata(search, &home, &name)? else { return Ok(None) };
    let id = metadata.get("instance-id").and_then(Value::text).unwrap_or_default();
    let (pro, own) = (format!("{home}/{}", marks::FOLDERS[0]), format!("{home}/{}", marks::FOLDERS[1]));
    let (mut agent, mut user) = (None, None);
    if installed::distro(search.root).name == "ubuntu" {
        // Older releases of Landscape's client do not know the option.
        let request = Some(id.as_str()).filter(|id| *id != DEFAULT_ID && has_installation_request(search));
        user = Document::read(search.root, &format!("{pro}/{name}.user-data"), request)?;
        agent = Document::read(search.root, &format!("{pro}/agent.yaml"), request)?;
    }
    if user.is_none() {
        let files = search.root.list(&own);
        let wanted = marks::user_data_names(search.root, Some(&name));
        let file = wanted.iter().find_map(|name| files.iter().find(|file| file.to_ascii_lowercase() == *name));
        if let Some(file) = file {
            user = Document::read(search.root, &format!("{own}/{file}"), None)?;
        }
    }
    if agent.is_none() && user.is_none() {
        return Ok(None);
    }
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let instance = Instance {
        source: SOURCE.name.into(),
        class: "DataSourceWSL".into(),
        platform: "wsl".into(),
        cloud_name: "wsl".into(),
        subplatform: "unknown".into(),
        local_hostname: text("local-hostname"),
        public_keys: public_keys(metadata.get("public-keys")),
        instance_id: id,
        user_data: user_data::merged(agent, user)
            .filter(|text| !text.is_empty())
            .map(|text| Bytes::from(text.into_bytes())),
        metadata: Value::Map(metadata),
        ..Instance::default()
    };
    Ok(Some(Found { instance, place: home }))
}

/// The output of a program, without white space at its end. None if it fails.
fn ask(search: &Search, words: &[&str]) -> Option<Vec<u8>> {
    search.tools.ask(words, search.deadline.at_most(TIME).left()).filter(|answer| answer.success).map(|a| a.stdout)
}

fn ask_text(search: &Search, words: &[&str]) -> Option<String> {
    let text = String::from_utf8(ask(search, words)?).ok()?.trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The distribution's name in Windows: the last part of its root's path there, `//wsl.localhost/NAME/`.
fn instance_name(search: &Search) -> Option<String> {
    let path = ask_text(search, &[WSLPATH, "-am", "/"])?;
    let name = path.trim_end_matches('/').rsplit('/').next()?;
    (!name.is_empty() && name != "..").then(|| name.to_owned())
}

/// The Windows user's home folder, as a path here.
fn home(search: &Search) -> Option<String> {
    let can_run = |path: &String| search.root.stat(path).is_some_and(|s| s.attr.mode & 0o111 != 0);
    let drives = marks::drives(search.machine).into_iter();
    let program = drives.map(|drive| format!("{drive}/Windows/System32/cmd.exe")).find(can_run)?;
    // /init runs Windows programs; it is called explicitly because nothing may have registered it this early.
    // /U: UTF-16.
    let output = ask(search, &["/init", &program, "/U", "/C", "echo.%USERPROFILE%"])?;
    let units: Vec<u16> = output.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let windows = String::from_utf16(&units).ok()?;
    let path = ask_text(search, &[WSLPATH, "-au", windows.trim_end()])?;
    path.starts_with('/').then(|| path.trim_end_matches('/').to_owned())
}

/// The metadata of the distribution; a default if it has no file. None, with a problem, if the file has no instance-id.
fn metadata(search: &mut Search, home: &str, name: &str) -> Result<Option<Map>> {
    for folder in marks::FOLDERS {
        let path = format!("{home}/{folder}/{name}.meta-data");
        let Some(bytes) = search.document(&path)? else { continue };
        let document = yaml::parse(&path, &String::from_utf8_lossy(&bytes))?;
        return match document {
            Value::Map(map) if map.get("instance-id").and_then(Value::text).is_some() => Ok(Some(map)),
            Value::Map(_) => {
                search.problem(format!("WSL: {path}: expected an instance-id: it is not used"));
                Ok(None)
            }
            other => Err(wrong(&path, "a mapping", &other)),
        };
    }
    Ok(Some([("instance-id", DEFAULT_ID)].into_iter().collect()))
}

/// Whether Landscape's client supports installation requests.
fn has_installation_request(search: &Search) -> bool {
    ask_text(search, &["landscape-config", "--help"]).is_some_and(|help| help.contains("--installation-request-id"))
}
