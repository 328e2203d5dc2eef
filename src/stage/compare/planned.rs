//! What prepivot would make of the cached instance.

use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::Instance;
use crate::instance::state::{self, CLOUD_DIR, RUN_DIR};
use crate::machine::Machine;
use crate::root::{Attr, Change, Root, Stage, Time, Use};
use crate::stage::Options;
use crate::stage::boot::{Boot, NETWORK};
use crate::stage::modules::{Half, Run};
use crate::stage::outside::OfTree;
use crate::stage::plan::Trace;
use crate::stage::provision;
use crate::userdata::config::CLOUD_CFG_D;
use std::collections::BTreeSet;
use std::path::Path;

/// What belongs to the last instance: absent for the plan.
const OF_INSTANCE: [&str; 4] = ["instance", "instances", "data", "sem"];
/// Files that cloud-init makes from nothing, where an edit of the file that is there would not show what it should not have: absent
/// for the plan, too.
const WHOLE: [&str; 3] = [
    "/etc/sudoers.d/90-cloud-init-users",
    "/etc/ssh/sshd_config.d/50-cloud-init.conf",
    "/etc/netplan/50-cloud-init.yaml",
];

/// A file of the configuration that is newer than the instance.
#[derive(Clone)]
struct DropIn {
    path: String,
    content: Vec<u8>,
    attr: Attr,
}

/// Plans an instance as a new one over what is there.
pub struct Planner<'a> {
    path: &'a Path,
    machine: &'a Machine,
    /// Files of the configuration that the instance's first boot did not have when it began: its own documents and commands made them,
    /// or an administrator later. Only the stages after the network's have them.
    drop_ins: Vec<DropIn>,
}

/// A plan.
pub struct Planned {
    /// What each path is to be, in the order of the paths.
    pub intended: Vec<Change>,
    /// What each module changed.
    pub trace: Trace,
    /// The paths that were read.
    pub read: BTreeSet<String>,
    /// The merged configuration.
    pub config: Value,
    /// Errors and warnings.
    pub notes: Vec<String>,
}

impl<'a> Planner<'a> {
    /// Of the machine or image at `path`, where the first module of the instance began at `began`: boothooks have run before it.
    pub fn new(path: &'a Path, machine: &'a Machine, disk: &Root, began: Option<Time>) -> Self {
        let drop_in = |name: &String| {
            let path = format!("{CLOUD_CFG_D}/{name}");
            let is_newer = disk.modified(&path).zip(began).is_some_and(|(modified, began)| modified >= began);
            let content = disk.read(&path).ok().flatten().filter(|_| is_newer && name.ends_with(".cfg"))?;
            Some(DropIn { content, attr: disk.stat(&path)?.attr, path })
        };
        let drop_ins = disk.list(CLOUD_CFG_D).iter().filter_map(drop_in).collect();
        Planner { path, machine, drop_ins }
    }

    /// Plans the instance, with `above` over all other configuration. What was wrong before is in `report`.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn plan(&self, instance: &Instance, above: Map, report: Problems) -> Result<Planned> {
        let mut root = Root::open(self.path, Use::Plan)?;
        for name in OF_INSTANCE {
            root.remove(&format!("{CLOUD_DIR}/{name}"))?;
        }
        let later = self.drop_ins.iter().map(|file| file.path.as_str());
        for path in WHOLE.into_iter().chain([RUN_DIR]).chain(later) {
            root.remove(path)?;
        }
        let outside = OfTree::provisioned(self.path);
        let options = Options { files: vec![("what cloud-init has done".into(), above)], ..Options::default() };
        let mut boot = Boot::new(&root, self.machine, &options, &outside);
        boot.report.absorb(report);
        let (trace, mut observer) = Trace::observed();
        let mut waiting = self.drop_ins.clone();
        boot.observer = Some(Box::new(move |root, module, problems| {
            observer(root, module, problems);
            // The configuration of the network stage is merged by the time of the next module.
            if module == NETWORK {
                for DropIn { path, content, attr } in waiting.drain(..) {
                    // The plan goes on without it: what it would have changed is shown as different.
                    let _ = root.write(&path, content, attr);
                }
            }
        }));
        root.watch();
        root.trace_changes();
        provision::provision(&mut root, &mut boot, instance, true);
        root.enter(Stage::Network);
        provision::files_of_running_system(&mut root, instance, &boot.report);
        for stage in Stage::WITH_MODULES {
            root.enter(stage);
            Run::new(&mut root, &mut boot, instance).stage(stage, Half::Running);
        }
        boot.observer = None;
        Ok(Planned {
            read: root.take_watched().into_iter().collect(),
            intended: root.intended(),
            trace: trace.take(),
            config: boot.config().clone(),
            notes: boot.errors_and_warnings(),
        })
    }
}

impl Planned {
    /// What the path is to be.
    pub fn at(&self, path: &str) -> Option<&Change> {
        let place = self.intended.binary_search_by(|change| change.path().cmp(path)).ok()?;
        self.intended.get(place)
    }
}

/// Puts what cloud-init itself made of the instance's documents in their place.
pub fn take_as_read(disk: &Root, instance: &mut Instance) {
    let folder = state::folder(instance);
    let merged = |prefix: &str| disk.read(&format!("{folder}/{prefix}cloud-config.txt")).ok().flatten();
    let vendor = |prefix: &str| merged(prefix).map(Value::of_bytes).unwrap_or_default();
    instance.user_data = merged("").map(Into::into);
    instance.vendor_data = vendor("vendor-");
    instance.vendor_data2 = vendor("vendor2-");
}
