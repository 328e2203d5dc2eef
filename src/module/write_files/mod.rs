//! # write_files
//!
//! Writes files with the content of the entry (plain, base64, gzip or encrypted, as `encoding` says) or of `source: uri` (a path,
//! file: or http), before the pivot. Missing folders are made. `owner` is `user:group`, root:root by default;
//! `permissions` is an octal number in quotes, 0644 by default. Files from a server, files in /tmp, /dev, /proc and
//! /sys, and owners that the same cloud-config makes, wait for the real root, which has mounted and emptied /tmp by then. A
//! kernel's file in /proc or /sys gets the content unchanged, even with `append`. Entries with
//! `defer: true` are left to the module write_files_deferred.
//!
//! ```yaml
//! write_files:
//! - path: /etc/motd
//!   content: |
//!     Managed by the platform team.
//! - path: /usr/local/bin/tool
//!   permissions: '0755'
//!   encoding: b64
//!   content: IyEvYmluL3NoCmVjaG8gaGkK
//! ```
//!
//! ```schema
//! write_files: [{
//!  path!, content, owner, permissions: str
//!  source: {uri!: str  headers: {...: str}}
//!  encoding: (gz gzip gz+base64 gzip+base64 gz+b64 gzip+b64 b64 base64 text/plain systemd-creds age sealed)
//!  append, defer: bool
//! }]+
//! ```

mod content;

pub use content::gunzip;

use super::Module;
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::instance::state;
use crate::root::{Attr, Content, MAX_PATH, MAX_READ, Owners, Root, Stage, owner};
use crate::system::users::{Users, names_of};
use crate::system::{ModuleContext, WebRequest, service};
use crate::trust::sealed;
use content::Source;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt;

pub static MODULE: Module = Module {
    name: "write_files",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    keys: &["write_files"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(idle),
    ..Module::NEW
};

/// # write_files_deferred
///
/// Writes the entries of `write_files` that have `defer: true`, in the final stage: after users were made and packages
/// installed.
///
/// ```yaml
/// write_files:
/// - path: /srv/www/index.html
///   owner: www-data:www-data
///   defer: true
///   content: It works.
/// ```
pub static DEFERRED: Module = Module {
    name: "write_files_deferred",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["write_files"],
    running: Some(deferred),
    offline: true,
    ..Module::NEW
};

/// How often a server is asked for a file.
const TRIES: u32 = 4;
/// How many bytes of a file are searched in one step.
const SEARCHED: usize = 64;
/// What the stage's budget must have left for an entry: its folders and their paths may take 128 KB, and other modules have the rest.
const ROOM: usize = 640 << 10;
/// The default mode and owner.
const DEFAULT_MODE: u32 = 0o644;
/// The mode if `permissions` is wrong.
const PRIVATE_MODE: u32 = 0o600;

/// An entry of the list.
struct Entry<'a> {
    /// Its place in the list, from 1.
    number: usize,
    path: String,
    map: &'a Map,
    owner: &'a Owner,
    /// How many more bytes the inline contents of this and later entries may have.
    room: &'a Cell<usize>,
}

/// The two parts of `owner`; None leaves that part unchanged.
struct Owner {
    user: Option<Part>,
    group: Option<Part>,
}

/// The user or group that is to own a file.
struct Part {
    name: String,
    /// Its number, if the root knows it.
    id: Option<u32>,
    /// Whether this cloud-config creates it.
    is_made: bool,
}

/// Writes everything except for deferred entries and those that wait for the running system.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    each(cx, false, &|cx, entry| if entry.waits(cx.root) { Ok(()) } else { write(cx, entry) })
}

/// Whether an entry names an owner: the files of all others belong to root from the start.
fn names_owners(cx: &ModuleContext) -> bool {
    let entries = cx.get("write_files").and_then(Value::as_list).unwrap_or_default();
    entries.iter().any(|entry| entry.get("owner").is_some())
}

/// The folders above files of [`before_pivot`] that are not on the disk yet.
pub fn new_folders(cx: &mut ModuleContext) -> HashSet<String> {
    if !names_owners(cx) {
        return HashSet::new();
    }
    let found = RefCell::new(HashSet::new());
    let _ = each(cx, false, &|cx, entry| {
        let new = entry.folders().filter(|folder| cx.root.is_new_dir(folder));
        found.borrow_mut().extend(new.map(str::to_owned));
        Ok(())
    });
    found.into_inner()
}

/// Gives the files of [`before_pivot`] to the users and groups that this cloud-config made after them, with those of the folders
/// `new` that were made for them. Errors of an entry were reported when it was written.
pub fn give(cx: &mut ModuleContext, new: HashSet<String>) {
    if !names_owners(cx) || !state::is_done(cx.root, cx.instance, "config_write_files", MODULE.frequency) {
        return;
    }
    let new = RefCell::new(new);
    let given = each(cx, false, &|cx, entry| {
        if entry.waits(cx.root) {
            return Ok(());
        }
        // A folder was made for the first entry below it, and belongs to the owner of that one.
        let made: Vec<&str> = entry.folders().filter(|folder| new.borrow_mut().remove(*folder)).collect();
        if entry.owner.is_made() { own(cx, entry, &made) } else { Ok(()) }
    });
    if let Err(e) = given {
        log::debug!("{e}");
    }
}

/// Whether every entry was written completely, including its owner.
fn idle(cx: &mut ModuleContext) -> bool {
    let is_left = Cell::new(false);
    let read = each(cx, false, &|cx, entry| {
        if entry.waits(cx.root) || entry.owner.is_made() {
            is_left.set(true);
        }
        Ok(())
    });
    read.is_ok() && !is_left.get()
}

/// Writes the entries that waited, and sets owners that this cloud-config has since created, unless [`give`]
/// did that.
fn running(cx: &mut ModuleContext) -> Result<()> {
    each(cx, false, &|cx, entry| {
        if entry.waits(cx.root) {
            return write(cx, entry);
        }
        if entry.owner.is_made() { own(cx, entry, &[]) } else { Ok(()) }
    })
}

fn deferred(cx: &mut ModuleContext) -> Result<()> {
    each(cx, true, &write)
}

/// Calls `job` for each entry that is deferred, or each that is not. If one fails the others still run; the
/// error names all.
fn each(cx: &mut ModuleContext, deferred: bool, job: &dyn Fn(&mut ModuleContext, &Entry) -> Result<()>) -> Result<()> {
    let Some(value) = cx.get("write_files") else { return Ok(()) };
    let list = value.as_list().ok_or_else(|| wrong("write_files", "a list", value))?;
    let mut last = None;
    let made = made(cx);
    // The root's account files, read again when an entry has written one, and the owners found in them.
    let mut accounts = None;
    let mut owners: HashMap<String, Owner> = HashMap::new();
    let room = Cell::new(content::MAX_CONTENTS);
    for (i, value) in list.iter().enumerate() {
        let number = i + 1;
        let Some(map) = value.as_map() else {
            fail(cx, &mut last, wrong(&format!("write_files: entry {number}"), "a mapping", value));
            continue;
        };
        if map.get("defer").is_some_and(Value::is_true) != deferred {
            continue;
        }
        let path = map.get("path").and_then(Value::text).unwrap_or_default();
        if path.is_empty() {
            cx.report.warn(format_args!("write_files: entry {number}: it has no path: it is ignored"));
            continue;
        }
        let text = map.get("owner").and_then(Value::text).unwrap_or_else(|| "root:root".into());
        if let Some((key, long)) =
            [("path", &path), ("owner", &text)].into_iter().find(|(_, text)| text.len() >= MAX_PATH)
        {
            let length = long.len();
            fail(cx, &mut last, Error::new(format!("write_files: entry {number}: {key}: {length} bytes are too long")));
            continue;
        }
        let path = absolute(&path);
        let accounts_now = accounts.get_or_insert_with(|| owner::owners(cx.root));
        let owner = owners.entry(text).or_insert_with_key(|text| Owner::of(accounts_now, &made, text));
        let entry = Entry { number, path, map, owner, room: &room };
        if let Err(e) = job(cx, &entry) {
            fail(cx, &mut last, e.context(&entry));
        }
        if matches!(entry.path.as_str(), "/etc/passwd" | "/etc/group") {
            accounts = None;
            owners.clear();
        }
    }
    last.map_or(Ok(()), Err)
}

/// Keeps the last failure, which is the module's, and reports the one before.
fn fail(cx: &mut ModuleContext, last: &mut Option<Error>, new: Error) {
    if let Some(before) = last.replace(new) {
        cx.report.warn(before);
    }
}

/// The absolute path without dots. It need not exist.
fn absolute(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn write(cx: &mut ModuleContext, entry: &Entry) -> Result<()> {
    budget::check_last(ROOM)?;
    let Some(content) = content(cx, entry)? else { return Ok(()) };
    let old = cx.root.stat(&entry.path).map(|s| s.attr);
    let (attr, owner) = wanted(cx, entry, old);
    // New parent folders get the file's owner.
    cx.root.mkdir_above(&entry.path, Attr { mode: 0o755, ..attr })?;
    let is_request = cx.root.is_of_kernel(&entry.path);
    if !is_request && entry.map.get("append").is_some_and(Value::is_true) {
        if (cx.again || cx.retried) && has(cx.root, &entry.path, &content)? {
            return owner;
        }
        cx.root.extend(&entry.path, content, attr)?;
        cx.root.note_appended(&entry.path);
    } else {
        cx.root.write(&entry.path, content, attr)?;
    }
    if is_request {
        // In the entries' order: one may make the file of the next, and a file may get several.
        let mut errors = cx.root.commit().into_iter();
        let first = errors.next();
        errors.for_each(|e| cx.report.error(e));
        first.map_or(Ok(()), Err)?;
    }
    owner
}

/// Whether a file has a content, all of it text, somewhere.
fn has(root: &Root, path: &str, content: &Content) -> Result<bool> {
    let size = root.stat(path).map_or(0, |s| s.size) + content.len();
    budget::step(usize::try_from(size).unwrap_or(usize::MAX) / SEARCHED)?;
    let (all, new) = (root.read(path)?.unwrap_or_default(), content.to_vec());
    let texts = [&all, &new].map(|bytes| std::str::from_utf8(bytes));
    Ok(matches!(texts, [Ok(all), Ok(new)] if all.contains(new)))
}

/// Sets the mode and owner of an existing file, and the owner of the folders `made` for it, which belong to root until now.
fn own(cx: &mut ModuleContext, entry: &Entry, made: &[&str]) -> Result<()> {
    let Some(old) = cx.root.stat(&entry.path) else { return Ok(()) };
    let (attr, owner) = wanted(cx, entry, Some(old.attr));
    for folder in made {
        if cx.root.stat(folder).is_some_and(|s| s.attr == Attr::root(0o755)) {
            cx.root.set_attr(folder, Attr { mode: 0o755, ..attr })?;
        }
    }
    cx.root.set_attr(&entry.path, attr)?;
    owner
}

/// The mode and owner of the file. An owner that the root does not know is root for now, which is no error if
/// this cloud-config creates it.
fn wanted(cx: &mut ModuleContext, entry: &Entry, old: Option<Attr>) -> (Attr, Result<()>) {
    let unset = old.map_or(PRIVATE_MODE, |a| a.mode);
    let mut attr =
        Attr { mode: mode(entry, unset, cx.report), uid: old.map_or(0, |a| a.uid), gid: old.map_or(0, |a| a.gid) };
    let mut missing = None;
    for (part, id) in [(&entry.owner.user, &mut attr.uid), (&entry.owner.group, &mut attr.gid)] {
        let Some(part) = part else { continue };
        *id = part.id.unwrap_or(0);
        if part.id.is_none() {
            missing = Some(part);
        }
    }
    let result = match missing {
        Some(Part { name, is_made: false, .. }) => Err(Error::new(format!(
            "the owner {} is not known here: the file belongs to root. With defer: true it is written after packages are installed",
            quoted(name)
        ))),
        Some(_) => {
            log::info!("{entry}: its owner is made later, and gets it then");
            Ok(())
        }
        None => Ok(()),
    };
    (attr, result)
}

/// The name in messages: `write_files: entry 3 (/etc/motd)`. A path is not secret.
impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "write_files: entry {} ({})", self.number, self.path)
    }
}

impl Entry<'_> {
    /// Whether it can be written only in the running system: it comes from a server, or its content or its place does not last until
    /// then, or its key does not.
    fn waits(&self, root: &Root) -> bool {
        let comes_later = match Source::of(self.map) {
            Source::Http(_) => true,
            Source::File(path) => root.is_of_running_system(&path),
            Source::Inline | Source::Unknown => false,
        };
        comes_later || sealed::is_sealed_file(self.map) || root.is_of_running_system(&self.path)
    }

    /// The folders above the file, the root's own left out.
    fn folders(&self) -> impl Iterator<Item = &str> {
        let ends = self.path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0);
        ends.filter_map(|end| self.path.get(..end))
    }
}

impl Owner {
    /// Parses `user:group`, `user` or `:group`. An empty part means root; `-1` and `None` leave that part
    /// unchanged.
    fn of(accounts: &Owners, made: &HashSet<String>, text: &str) -> Owner {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let part = |name: &str, id: &dyn Fn(&str) -> Option<u32>| {
            let name = Some(name.trim()).filter(|n| !matches!(*n, "" | "-1" | "None" | "none"))?;
            Some(Part { name: name.to_owned(), id: id(name), is_made: made.contains(name) })
        };
        Owner {
            user: part(user, &|name| accounts.user(name).map(|ids| ids.uid)),
            group: part(group, &|name| accounts.group(name)),
        }
    }

    /// Whether this cloud-config creates the user or the group.
    fn is_made(&self) -> bool {
        self.user.iter().chain(&self.group).any(|part| part.is_made)
    }
}

/// The names of the users and groups that this cloud-config makes, those that only a user's own `groups` name too.
fn made(cx: &mut ModuleContext) -> HashSet<String> {
    // The module users_groups reports what is wrong with them.
    let known = cx.report.take();
    let users = Users::of(cx);
    cx.report.take();
    cx.report.absorb(known);
    let mut made = HashSet::new();
    for (name, user) in users.users {
        made.insert(name);
        if user.get("create_groups").is_none_or(|v| !v.is_false()) {
            let of = |key| user.get(key).and_then(names_of).unwrap_or_default();
            made.extend(of("groups"));
            made.extend(of("primary_group"));
        }
    }
    made.extend(users.groups.into_iter().map(|(name, _)| name));
    made
}

/// `permissions`: a string is octal; a number is used as it is, as in cloud-init. A value that is no mode and becomes 0 there (0.5,
/// false) sets none there either: the file has the mode `unset`. Any other wrong value is [`PRIVATE_MODE`]: the content may be a secret.
fn mode(entry: &Entry, unset: u32, report: &Problems) -> u32 {
    let value = match entry.map.get("permissions") {
        None | Some(Value::Null) => return DEFAULT_MODE,
        Some(value) => value,
    };
    let is_octal_or_whole = matches!(value, Value::Int(_) | Value::String(_));
    let mode = match value {
        Value::Bool(b) => Some(i64::from(*b)),
        Value::Int(i) => Some(*i),
        Value::Float(f) if f.is_finite() => Some(*f as i64),
        Value::String(s) => {
            let digits = s.trim();
            let digits = digits.strip_prefix("0o").or_else(|| digits.strip_prefix("0O")).unwrap_or(digits);
            i64::from_str_radix(digits, 8).ok()
        }
        _ => None,
    };
    match mode.and_then(|m| u32::try_from(m).ok()) {
        Some(0) if !is_octal_or_whole => {
            report.warn(format_args!("{entry}: permissions: expected an octal number in quotes: no mode is set"));
            unset
        }
        Some(mode) if mode <= 0o7777 => mode,
        _ => {
            report.warn(format_args!(
                "{entry}: permissions: expected an octal number of four digits in quotes: 0600 is used"
            ));
            PRIVATE_MODE
        }
    }
}

/// The entry's inline content, within the limit for all entries.
fn inline(cx: &mut ModuleContext, entry: &Entry) -> Result<Option<Content>> {
    let content = content::inline(entry.map, entry.room.get(), entry, cx.report)?;
    entry.room.set(entry.room.get() - content.as_ref().map_or(0, |c| c.len() as usize));
    Ok(content)
}

/// The content, from its source or else inline. None, with a warning, if there is neither, and in a plan, which fetches nothing.
fn content(cx: &mut ModuleContext, entry: &Entry) -> Result<Option<Content>> {
    let source = Source::of(entry.map);
    let fetched = match &source {
        // Why it is not opened was reported where that was tried.
        Source::Inline if sealed::is_sealed_file(entry.map) => return Ok(None),
        Source::Inline => return Ok(Some(inline(cx, entry)?.unwrap_or_else(|| "".into()))),
        Source::File(path) => match cx.root.read(path) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Error::new(format!("source.uri: there is no file {path}"))),
            Err(e) => Err(e),
        },
        Source::Http(url) => {
            let headers = entry.map.get("source").and_then(|s| s.get("headers")).and_then(Value::as_map);
            let pairs = headers.map(Map::iter).into_iter().flatten();
            let request = WebRequest {
                method: "GET",
                url: url.clone(),
                headers: pairs.filter_map(|(k, v)| Some((k.to_owned(), v.text()?))).collect(),
                body: Vec::new(),
                limit: usize::try_from(MAX_READ).unwrap_or(usize::MAX),
            };
            match service::send(cx, &request, TRIES) {
                Ok(None) => return Ok(None),
                Ok(Some(bytes)) => Ok(bytes),
                Err(e) => Err(e),
            }
        }
        Source::Unknown => {
            Err(Error::new("source.uri: expected an address that begins with http://, https:// or file:, or a path"))
        }
    };
    match (fetched, inline(cx, entry)?) {
        (Ok(bytes), _) => Ok(Some(bytes.into())),
        (Err(e), Some(bytes)) => {
            cx.report.warn(format_args!("{entry}: {e}: its content is used instead"));
            Ok(Some(bytes))
        }
        (Err(e), None) => {
            cx.report.warn(format_args!("{entry}: {e}: it is ignored"));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::module::tests::Fixture;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    #[test]
    fn files_in_hidden_folders_wait_for_running_system() {
        let now = ["/srv/x", "/var/tmp/x", "/run/x", "/temporary/tmp/x", "/srv/tmp/../x"];
        let later = ["/tmp/a/x", "//tmp/x", "/srv/../tmp/x", "/link/x", "/dev/shm/x", "/sys/x", "/proc/sys/x"];
        for (paths, is_early) in [(&now[..], true), (&later, false)] {
            for path in paths {
                let fixture = Fixture::new("debian");
                std::os::unix::fs::symlink("/tmp", fixture.dir.0.join("link")).unwrap();
                let resolved = absolute(path).replace("/link/", "/tmp/");
                let config = format!("write_files: [{{path: {path}, content: text}}]");
                for (half, expected) in
                    [(MODULE.before_pivot, if is_early { "text" } else { "" }), (MODULE.running, "text")]
                {
                    let left = fixture.run(&config, &[half]);
                    assert_eq!((left.errors, fixture.text(&resolved).as_str()), (vec![], expected), "{path}");
                }
            }
        }
        let fixture = Fixture::new("debian");
        let config = "write_files: [{path: /srv/x, source: {uri: 'file:///proc/version'}}]";
        fixture.put("/proc/version", "of the initramfs", 0o444);
        fixture.run(config, &[MODULE.before_pivot]);
        assert_eq!(fixture.text("/srv/x"), "");
        fixture.put("/proc/version", "Linux", 0o644);
        fixture.run(config, &[MODULE.running]);
        assert_eq!(fixture.text("/srv/x"), "Linux");
    }

    #[test]
    fn paths_and_owners_have_the_kernels_length() {
        let fixture = Fixture::new("debian");
        let long = "x".repeat(MAX_PATH);
        let config =
            format!("write_files: [{{path: '/{long}'}}, {{path: /b, owner: {long}}}, {{path: /a, content: x}}]");
        let left = fixture.run(&config, &[MODULE.before_pivot]);
        assert_eq!(left.errors, ["write_files: entry 2: owner: 4096 bytes are too long"]);
        assert_eq!(left.warnings, ["write_files: entry 1: path: 4097 bytes are too long"]);
        assert_eq!((fixture.text("/a").as_str(), fixture.dir.0.join("b").exists()), ("x", false));
    }

    #[test]
    fn kernel_files_get_entries_one_by_one() {
        use std::os::unix::fs::MetadataExt;
        let fixture = Fixture::new("debian");
        fixture.put("/sys/a", "of the kernel", 0o200);
        fixture.put("/sys/z", "of the kernel", 0o644);
        let number = |path: &str| std::fs::metadata(fixture.dir.0.join(path)).unwrap().ino();
        let before = ["sys/a", "sys/z"].map(number);
        let config = "write_files: [{path: /sys/z, content: one}, {path: /sys/a/b, content: two}, {path: /sys/a, content: three},\
                      {path: /sys/z, content: four, append: true}]";
        let left = fixture.run(config, &[MODULE.before_pivot, MODULE.running]);
        assert!(left.errors.len() == 1 && left.errors[0].contains("entry 2 (/sys/a/b)"), "{:?}", left.errors);
        assert_eq!(
            (["sys/a", "sys/z"].map(|p| fixture.text(p)), ["sys/a", "sys/z"].map(number)),
            (["three".into(), "four".into()], before)
        );
    }

    #[test]
    fn sets_no_mode_for_what_is_none() {
        for (permissions, new, old) in [
            ("0.5", 0o600, 0o640),
            ("-0.9", 0o600, 0o640),
            ("false", 0o600, 0o640),
            ("0", 0, 0),
            ("'0000'", 0, 0),
            ("1.5", 1, 1),
            ("true", 1, 1),
            ("'0755'", 0o755, 0o755),
            ("493", 0o755, 0o755),
            ("null", 0o644, 0o644),
            ("'00755'", 0o755, 0o755),
            ("4095", 0o7777, 0o7777),
            ("4096", 0o600, 0o600),
            ("'0777777'", 0o600, 0o600),
            ("0777777", 0o600, 0o600),
            ("u=rw", 0o600, 0o600),
            ("[]", 0o600, 0o600),
            ("-1", 0o600, 0o600),
            (".nan", 0o600, 0o600),
        ] {
            let fixture = Fixture::new("debian");
            fixture.put("/old", "old", 0o640);
            let entry = |path: &str| format!("{{path: {path}, content: x, permissions: {permissions}}}");
            let config = format!("write_files: [{}, {}]", entry("/new"), entry("/old"));
            let left = fixture.run(&config, &[MODULE.before_pivot]);
            assert_eq!(left.errors, Vec::<String>::new(), "{permissions}");
            let mode = |path: &str| {
                use std::os::unix::fs::MetadataExt;
                std::fs::metadata(fixture.dir.0.join(path)).unwrap().mode() & 0o7777
            };
            assert_eq!((mode("new"), mode("old")), (new, old), "{permissions}");
        }
    }

    #[test]
    fn paths_stay_inside() {
        for (path, expected) in [("rel/x", "/rel/x"), ("/a/../../b", "/b"), ("//a/./b/", "/a/b"), ("..", "/")] {
            assert_eq!(absolute(path), expected);
        }
    }

    #[test]
    fn entry_may_define_the_owner_of_later_ones() {
        let config = "write_files: [{path: /a, owner: web, content: x},\n\
             {path: /etc/passwd, append: true, content: \"web:x:33:33::/:/bin/sh\\n\"}, {path: /b, owner: web, content: x}]";
        let dir = TempDir::new("owner-in-passwd");
        let mut root = dir.root(Use::Plan);
        let result = before_pivot(&mut Inputs::new("debian", config).context(&mut root));
        assert!(result.unwrap_err().to_string().starts_with("write_files: entry 1 (/a)"));
        assert_eq!(["/a", "/b"].map(|path| root.stat(path).unwrap().attr.uid), [0, 33]);
    }

    #[test]
    fn what_the_cloud_config_makes() {
        let config = "users: [default, bob, {name: alice, primary_group: staff, groups: 'ops, dev'}, [x, y],\n\
             {name: eve, create_groups: false, groups: nobody}]\ngroups: [cloud, {web: [bob]}]\n\
             system_info: {default_user: {name: debian, groups: [adm]}}\n";
        let dir = TempDir::new("made");
        let (mut root, inputs) = (dir.root(Use::Plan), Inputs::new("debian", config));
        inputs.report.warn("kept");
        let made = made(&mut inputs.context(&mut root));
        let mut made: Vec<&str> = made.iter().map(String::as_str).collect();
        made.sort_unstable();
        assert_eq!(made.join(" "), "adm alice bob cloud debian dev eve ops staff web x y");
        assert_eq!(inputs.report.entries().len(), 1);
    }
}
