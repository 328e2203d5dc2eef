//! A fake machine with disks, for tests of modules: files below its /dev, and a sysfs that describes them.

use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::base::testing::TempDir;
use crate::document::yaml;
use crate::drive::devices::Places;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::{Command, Output, Root, Use};
use crate::system::partitions::{self, Geometry, Partition, PartitionKind, TableFormat, Wanted};
use crate::system::{Device, ModuleContext, Outside, WebRequest};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

pub const MIB: u64 = 1 << 20;

/// A machine's tree.
pub struct Machine {
    pub dir: TempDir,
    /// The output of commands, by their first words, in order; any other command prints nothing and succeeds.
    pub answers: Vec<(&'static str, i32, &'static str)>,
}

/// A module's actions.
pub struct Done {
    pub commands: Vec<String>,
    pub warnings: Vec<String>,
    pub root: Root,
}

/// Outside of the modules, the machine has these disks alone.
pub struct Disks(pub Places);

impl Outside for Disks {
    fn device(&self, _: &str) -> Option<Device> {
        None
    }
    fn places(&self) -> Option<Places> {
        Some(self.0.clone())
    }
    fn memory(&self) -> Option<u64> {
        None
    }
    fn http(&self, _: &WebRequest, _: u32) -> Result<Vec<u8>> {
        unreachable!()
    }
}

impl Machine {
    pub fn new(programs: &[&str]) -> Machine {
        let machine = Machine { dir: TempDir::new("disks"), answers: Vec::new() };
        for program in programs {
            machine.file(&format!("usr/bin/{program}"), "#!/bin/sh\n");
            let path = machine.dir.0.join("usr/bin").join(program);
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        machine
    }

    pub fn file(&self, path: &str, text: &str) {
        self.dir.write(path, text);
    }

    /// A device, or with `above` a partition or another part of a device in sysfs.
    fn device(&self, name: &str, above: &str, size: u64) {
        self.file(&format!("sys/devices/{above}{name}/size"), &(size / 512).to_string());
        fs::create_dir_all(self.dir.0.join("sys/class/block")).unwrap();
        symlink(format!("../../devices/{above}{name}"), self.dir.0.join("sys/class/block").join(name)).unwrap();
        self.file(&format!("dev/{name}"), "");
        self.open(name).set_len(size).unwrap();
    }

    pub fn open(&self, name: &str) -> File {
        File::options().read(true).write(true).open(self.dir.0.join("dev").join(name)).unwrap()
    }

    pub fn disk(&self, name: &str, size: u64) {
        self.device(name, "", size);
    }

    /// A table with one Linux partition of `size` bytes on a disk, which the kernel knows.
    pub fn partition(&self, disk: &str, size: u64) {
        let whole = self.open(disk).metadata().unwrap().len();
        let wanted = Wanted { sectors: Some(size / 512), kind: PartitionKind::Code(0x83) };
        let (_, steps) =
            partitions::create(None, Geometry::new(whole, 512).unwrap(), TableFormat::Mbr, &[wanted], false).unwrap();
        steps.iter().flatten().for_each(|w| self.open(disk).write_all_at(&w.content, w.offset).unwrap());
        self.device(&format!("{disk}1"), &format!("{disk}/"), size);
        self.file(&format!("sys/devices/{disk}/{disk}1/partition"), "1");
    }

    /// A mapping of the device mapper on other devices.
    pub fn mapping(&self, node: &str, name: &str, uuid: &str, below: &[&str]) {
        self.device(node, "", 8 * MIB);
        self.file(&format!("sys/devices/{node}/dm/name"), name);
        self.file(&format!("sys/devices/{node}/dm/uuid"), uuid);
        below.iter().for_each(|b| self.file(&format!("sys/devices/{node}/slaves/{b}/size"), ""));
        fs::create_dir_all(self.dir.0.join("dev/mapper")).unwrap();
        symlink(format!("../{node}"), self.dir.0.join("dev/mapper").join(name)).unwrap();
    }

    pub fn raid(&self, name: &str, level: &str, metadata: &str, used: u64, below: &[&str]) {
        self.device(name, "", 8 * MIB);
        for (file, text) in
            [("level", level), ("metadata_version", metadata), ("component_size", &(used / 1024).to_string())]
        {
            self.file(&format!("sys/devices/{name}/md/{file}"), text);
        }
        below.iter().for_each(|b| self.file(&format!("sys/devices/{name}/slaves/{b}/size"), ""));
    }

    pub fn places(&self) -> Places {
        Places { sys: self.dir.0.join("sys/class/block"), dev: self.dir.0.join("dev") }
    }

    /// The partitions in a disk's table.
    pub fn table(&self, disk: &str) -> Vec<Partition> {
        let file = self.open(disk);
        let geometry = Geometry::new(file.metadata().unwrap().len(), 512).unwrap();
        partitions::read(&file, geometry).unwrap().map(|t| t.partitions()).unwrap_or_default()
    }

    pub fn run(&self, config: &str, handler: fn(&mut ModuleContext) -> Result<()>) -> Done {
        let config = yaml::parse("cloud-config", config).unwrap();
        let mut root = self.dir.root(Use::Tree);
        let mut answers = self.answers.clone();
        root.play(Box::new(move |_: &Root, command: &Command| {
            let words = command.argv.join(" ");
            let at = answers.iter().position(|(start, ..)| words.starts_with(start));
            let (_, status, stdout) = at.map_or(("", 0, ""), |at| answers.remove(at));
            Ok(Output { status, stdout: stdout.into(), stderr: Vec::new() })
        }));
        let report = Problems::new();
        let instance = Instance::default();
        let distro = Distro::named("debian");
        let outside = Disks(self.places());
        let mut cx =
            ModuleContext { outside: &outside, ..ModuleContext::new(&mut root, &config, &instance, &distro, &report) };
        handler(&mut cx).unwrap();
        let commands = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        let warnings = report.entries().iter().map(|e| e.to_string()).collect();
        Done { commands, warnings, root }
    }
}
