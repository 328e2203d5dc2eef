//! `single`: runs one module by hand, in the running system.

use super::boot::Boot;
use super::modules::Run;
use super::{Options, append_log, commit, outside, real_root};
use crate::base::logging;
use crate::instance::Frequency;
use crate::machine::Machine;
use crate::module::Module;
use crate::root::Root;

/// Runs both halves of `module`, whichever stage it belongs to, with this boot's instance and configuration.
/// Returns the errors.
pub fn run(
    root: &mut Root,
    machine: &Machine,
    options: &Options,
    module: &'static Module,
    frequency: Option<Frequency>,
    arguments: &[String],
) -> Vec<String> {
    let recovered = super::recover(root);
    let Some(instance) = options.instance(root) else {
        return vec![
            "there is no datasource: nothing was provisioned yet; --force runs the module all the same".into(),
        ];
    };
    let outside = outside::of(root);
    let mut boot = Boot::new(root, machine, options, &*outside);
    boot.report.absorb(recovered);
    real_root::configure(root, &mut boot, &instance);
    Run::new(root, &mut boot, &instance).single(module, frequency, arguments);
    commit(root, &boot.report);
    boot.log();
    boot.report.keep(append_log(root, &logging::take()));
    commit(root, &boot.report);
    root.run_at_end().iter().for_each(|e| boot.report.error(e));
    boot.errors()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::{Map, Value, yaml};
    use crate::module;
    use crate::root::Use;

    fn file(name: &str, text: &str) -> (String, Map) {
        match yaml::parse(name, text) {
            Ok(Value::Map(map)) => (name.to_owned(), map),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn module_runs_with_named_files_or_if_forced() {
        let dir = TempDir::new("single");
        let mut root = dir.root(Use::Tree);
        let module = module::find("write-files").unwrap();
        let above = file("above", "write_files: [{path: /etc/x, content: above}]");
        let below = file("below", "write_files: [{path: /etc/x, content: below}]");
        let mut options = Options { files: vec![above, below], ..Options::default() };
        let mut single = |options: &Options, frequency| {
            let errors = run(&mut root, &Machine::default(), options, module, frequency, &[]);
            (errors.len(), root.text("/etc/x"))
        };
        assert_eq!(single(&options, None), (1, String::new()));
        options.force = true;
        assert_eq!(single(&options, None), (0, "above".to_owned()));
        options.files.remove(0);
        assert_eq!(single(&options, None), (0, "above".to_owned()), "it is done for this instance");
        assert_eq!(single(&options, Some(Frequency::Always)), (0, "below".to_owned()));
        let mark = "/var/lib/cloud/instances/iid-datasource-none/sem/config_write_files";
        assert!(dir.root(Use::Tree).exists(mark));
    }
}
