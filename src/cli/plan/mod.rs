//! `plan`: shows what provisioning a tree would change.

mod document;
mod drawing;
mod findings;
mod formats;
mod origins;
mod page;
mod picture;
mod secrets;
mod subject;

use super::files;
use super::program::{Program, print, report};
use super::verb::Verb;
use crate::base::error::{Context, Error, Result};
use crate::base::random;
use crate::document::json;
use crate::stage::plan::{self, Like, plan_like};
use argh::{ArgsInfo, FromArgs};
use document::{Document, Use};
use findings::Finding;
use log::LevelFilter;
use origins::Finder;
use picture::View;
use secrets::Secrets;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// show what provisioning would change, and change nothing
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "plan", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Small {
    /// the root
    #[argh(option, arg_name = "dir")]
    root: PathBuf,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option, arg_name = "path")]
    seed: PathBuf,
    /// one JSON object a line
    #[argh(switch)]
    json: bool,
}

impl Verb for Small {
    fn run(self, program: &Program) -> ExitCode {
        lines(program, &self.root, &self.seed, self.json)
    }
}

/// The plan with a line for each change.
fn lines(program: &Program, root: &Path, seed: &Path, json: bool) -> ExitCode {
    program.log(LevelFilter::Warn);
    match plan::plan(root, seed) {
        Ok(plan) => {
            print(&if json { plan.to_json_lines() } else { plan.to_text() });
            report(program, &plan.errors)
        }
        Err(e) => program.fail(e),
    }
}

/// show what provisioning would change, and change nothing
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "plan",
    help_triggers("-h", "--help"),
    note = "With --root and --seed alone, the exit code is the number of errors. With --as, --format, --html or user-data it is one of these, \
            for CI:",
    error_code(0, "nothing is wrong, or something is deprecated"),
    error_code(1, "a document is wrong, something that it asks for cannot be done, or no plan can be made"),
    error_code(2, "something is ignored or replaced by a default; or the command line is wrong")
)]
pub struct Plan {
    /// the root
    #[argh(option, arg_name = "dir")]
    root: Option<PathBuf>,
    /// a distribution instead of a root
    #[argh(
        option,
        long = "as",
        arg_name = "alpine|amazon-2023|arch|debian-12|debian-13|fedora-42|opensuse-leap|rocky-9|ubuntu-22.04|ubuntu-24.04"
    )]
    like: Option<String>,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option, arg_name = "path")]
    seed: Option<PathBuf>,
    /// the network configuration that goes with user-data
    #[argh(option, arg_name = "path")]
    network_config: Option<String>,
    /// the metadata that goes with user-data
    #[argh(option, arg_name = "path")]
    meta_data: Option<String>,
    /// one JSON object a line
    #[argh(switch)]
    json: bool,
    /// instead of the changes: what is wrong, as lines or for CI; or the whole plan as one JSON document
    #[argh(option, arg_name = "text|github|sarif|junit|json", from_str_fn(format))]
    format: Option<Format>,
    /// also write the plan as a page to this file
    #[argh(option, arg_name = "path")]
    html: Option<String>,
    /// with --html or --format json: do not mask passwords and other secrets
    #[argh(switch)]
    show_secrets: bool,
    /// user-data to plan with, instead of a seed; each file is one machine's
    #[argh(positional, arg_name = "path")]
    user_data: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Text,
    Github,
    Sarif,
    Junit,
    Json,
}

fn format(name: &str) -> std::result::Result<Format, String> {
    match name {
        "text" => Ok(Format::Text),
        "github" => Ok(Format::Github),
        "sarif" => Ok(Format::Sarif),
        "junit" => Ok(Format::Junit),
        "json" => Ok(Format::Json),
        _ => Err("expected text, github, sarif, junit or json".into()),
    }
}

impl Verb for Plan {
    fn run(self, program: &Program) -> ExitCode {
        let is_new = self.like.is_some() || self.format.is_some() || self.html.is_some() || !self.user_data.is_empty();
        match (&self.root, &self.seed) {
            (Some(root), Some(seed)) if !is_new => lines(program, root, seed, self.json),
            _ => match self.check() {
                Err(what) => program.usage(what),
                Ok(()) => self.all(program),
            },
        }
    }
}

/// What is found in all documents.
#[derive(Default)]
struct All {
    /// The paths of the documents.
    documents: Vec<String>,
    found: Vec<Finding>,
}

impl Plan {
    /// Whether the arguments go together.
    fn check(&self) -> std::result::Result<(), &'static str> {
        let with_files = self.network_config.is_some() || self.meta_data.is_some();
        match (self.root.is_some(), self.like.is_some(), self.seed.is_some(), !self.user_data.is_empty()) {
            (false, false, ..) => Err("expected --root or --as"),
            (true, true, ..) => Err("expected only one of --root and --as"),
            (.., false, false) => Err("expected --seed or user-data"),
            (.., true, true) => Err("expected only one of --seed and user-data"),
            (.., true, false) if with_files => Err("--network-config and --meta-data go with user-data"),
            _ if self.has_picture() && self.user_data.len() > 1 => Err("--html and --format json take one user-data"),
            _ if self.show_secrets && !self.has_picture() => Err("--show-secrets goes with --html or --format json"),
            _ if self.json && self.format.is_some() => Err("expected only one of --json and --format"),
            _ => Ok(()),
        }
    }

    /// Whether the whole plan is shown as one document or page.
    fn has_picture(&self) -> bool {
        self.html.is_some() || self.format == Some(Format::Json)
    }

    /// Makes the plans, and prints them or what is wrong.
    fn all(&self, program: &Program) -> ExitCode {
        // What is wrong is printed with its place.
        program.log(LevelFilter::Off);
        let mut all = All::default();
        let given: Vec<Option<&String>> = match self.seed {
            Some(_) => vec![None],
            None => self.user_data.iter().map(Some).collect(),
        };
        let several = given.len() > 1;
        for user_data in given {
            if let Some(path) = user_data.filter(|_| several && !self.json && self.format.is_none()) {
                print(&format!("{path}:\n"));
            }
            if let Err(e) = self.one(user_data, &mut all) {
                return program.fail(e);
            }
        }
        let All { documents, found } = &all;
        match self.format {
            None | Some(Format::Json) => eprint(&found.iter().map(Finding::line).collect::<String>()),
            Some(Format::Text) => print(&found.iter().map(Finding::line).collect::<String>()),
            Some(Format::Github) => print(&formats::github(found)),
            Some(Format::Sarif) => print(&formats::sarif(found)),
            Some(Format::Junit) => print(&formats::junit(documents, found)),
        }
        ExitCode::from(findings::exit_code(found))
    }

    /// Plans with one seed, or with one file of user-data.
    fn one(&self, user_data: Option<&String>, all: &mut All) -> Result<()> {
        let scratch = Scratch::new()?;
        let (mut documents, seed) = match (user_data, &self.seed) {
            (Some(path), _) => (self.seed_of(path, &scratch)?, scratch.0.join(SEED)),
            (None, Some(seed)) => (documents_of(seed), seed.clone()),
            (None, None) => return Err(Error::new("there is no user-data")),
        };
        let root = self.root.clone().unwrap_or_else(|| scratch.0.join(ROOT));
        let how = Like { distribution: self.like.as_deref(), traced: self.has_picture() };
        let plan = plan_like(&root, &seed, &how)?;
        if documents.is_empty() {
            // A drive: its user-data has no path of its own.
            let bytes = plan.instance.user_data.as_ref().map(|bytes| bytes.to_vec()).unwrap_or_default();
            documents.push(Document::new(Use::UserData, &seed.display().to_string(), &bytes));
        }
        let found = findings::find(&documents, &plan.report, &plan.trace.problems, &plan.idle);
        if self.has_picture() {
            self.picture(&plan, &documents, &found)?;
        }
        if self.format.is_none() {
            print(&if self.json { plan.to_json_lines() } else { plan.to_text() });
        }
        all.found.extend(found);
        all.documents.extend(documents.into_iter().map(|document| document.path));
        Ok(())
    }

    /// Prints the plan as one document, or writes it as a page.
    fn picture(&self, plan: &plan::Plan, documents: &[Document], found: &[Finding]) -> Result<()> {
        let secrets = Secrets::of(documents, self.show_secrets);
        let root = self.root.as_ref().map(|root| root.display().to_string());
        let target = self.like.clone().or(root).unwrap_or_default();
        let origins = Finder::new(documents, plan);
        let view = View { plan, documents, found, secrets: &secrets, origins: &origins, target: &target };
        let value = view.to_value();
        if self.format == Some(Format::Json) {
            print(&(json::to_string_indented(&value, "  ") + "\n"));
        }
        match &self.html {
            Some(path) => self.write(path, &page::html(&value)).context(|| format!("failed to write {path}")),
            None => Ok(()),
        }
    }

    /// Writes the page. One with secrets is its owner's alone before they are in it.
    fn write(&self, path: &str, page: &str) -> std::io::Result<()> {
        if self.show_secrets {
            std::fs::write(path, "")?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        }
        std::fs::write(path, page)
    }

    /// Makes a seed of one file of user-data and what goes with it. Returns the documents.
    fn seed_of(&self, user_data: &str, scratch: &Scratch) -> Result<Vec<Document>> {
        let bytes = files::read(user_data)?;
        scratch.write("user-data", &bytes)?;
        let mut documents = vec![Document::new(Use::UserData, user_data, &bytes)];
        let metadata =
            self.meta_data.as_ref().map_or_else(|| Ok(b"instance-id: plan\n".to_vec()), |path| files::read(path));
        scratch.write("meta-data", &metadata?)?;
        if let Some(path) = &self.network_config {
            let bytes = files::read(path)?;
            scratch.write("network-config", &bytes)?;
            documents.push(Document::new(Use::NetworkConfig, path, &bytes));
        }
        Ok(documents)
    }
}

/// The documents of a seed that is a folder in NoCloud's layout.
fn documents_of(seed: &Path) -> Vec<Document> {
    let read = |usage: Use| {
        let path = seed.join(usage.name()).display().to_string();
        let bytes = files::exists(&path).then(|| files::read(&path).ok()).flatten()?;
        Some(Document::new(usage, &path, &bytes))
    };
    [Use::UserData, Use::NetworkConfig].into_iter().filter_map(read).collect()
}

/// Prints a text on standard error.
fn eprint(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The folders in a [`Scratch`].
const ROOT: &str = "root";
const SEED: &str = "seed";

/// A folder of this user alone, for a plan without a root or a seed: an empty root, and a seed. It is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("prepivot-plan-{:016x}", random::number()));
        let scratch = Scratch(path);
        for folder in [scratch.0.clone(), scratch.0.join(ROOT), scratch.0.join(SEED)] {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
            made.context(|| format!("failed to make the folder {}", folder.display()))?;
        }
        // A machine of which nothing is known has the memory of a small one, whichever machine this is.
        let memory = scratch.0.join(ROOT).join("proc");
        std::fs::create_dir(&memory).context(|| format!("failed to make the folder {}", memory.display()))?;
        scratch.put("root/proc/meminfo", b"MemTotal: 2097152 kB\n")?;
        Ok(scratch)
    }

    /// Writes a file of the seed.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.put(&format!("{SEED}/{name}"), bytes)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).context(|| format!("failed to write {}", path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::distributions;

    #[test]
    fn help_names_each_distribution() {
        let info = Plan::get_args_info();
        let named = info.flags.iter().find(|flag| flag.long == "--as").unwrap();
        let argh::FlagInfoKind::Option { arg_name } = &named.kind else { panic!() };
        assert_eq!(arg_name.split('|').map(str::to_owned).collect::<Vec<_>>(), distributions::names());
    }
}
