//! Shared by the unit tests: what a boot reads from a temporary folder, its root and its machine.

use super::{Root, Use};
use crate::base::testing::TempDir;
use crate::machine::Machine;

impl TempDir {
    /// The folder as a root. A new root's `/run` is below it, too, and not the `/run` of the machine that tests.
    pub fn root(&self, usage: Use) -> Root {
        let own = (usage == Use::NewRoot).then_some(self.0.as_path());
        Root::open_beside(&self.0, usage, own).expect("failed to open the folder as a root")
    }

    /// The machine whose `/proc`, `/sys` and so on are below the folder.
    pub fn machine(&self) -> Machine {
        Machine::read(&self.0)
    }
}
