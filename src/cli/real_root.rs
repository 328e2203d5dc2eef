//! How verbs run stages of the real root: `init`, `modules`, `single` and `--all-stages`.

use super::files;
use super::program::{Program, report};
use crate::base::error::Result;
use crate::document::{Map, Value, wrong, yaml};
use crate::machine::Machine;
use crate::root::{Root, Stage, Use};
use crate::stage::{self, Options, end_on_signals};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// Calls `work` on the running system, with the configuration files `named` taking precedence, and reports
/// the errors that it returns.
pub fn run(
    program: &Program,
    named: &[String],
    work: impl FnOnce(&mut Root, &Machine, &Options) -> Vec<String>,
) -> ExitCode {
    program.log(LevelFilter::Info);
    end_on_signals();
    let files = named.iter().map(|path| configuration(path)).collect::<Result<Vec<_>>>();
    let options = match files {
        Ok(files) => Options { files, force: program.force, action: None },
        Err(e) => return program.fail(e),
    };
    match Root::open(Path::new("/"), Use::Tree) {
        Ok(mut root) => report(program, &work(&mut root, &Machine::read(Path::new("/")), &options)),
        Err(e) => program.fail(e),
    }
}

/// Runs all stages of the real root in order: `--all-stages`.
pub fn all_stages(program: &Program) -> ExitCode {
    run(program, &[], |root, machine, options| {
        Stage::ALL.into_iter().flat_map(|one| stage::run(root, machine, one, options)).collect()
    })
}

/// A configuration file that the command line names, with its path.
fn configuration(path: &str) -> Result<(String, Map)> {
    match yaml::parse(path, &files::text(path)?)? {
        Value::Map(map) => Ok((path.to_owned(), map)),
        Value::Null => Ok((path.to_owned(), Map::default())),
        other => Err(wrong(path, "a mapping", &other)),
    }
}
