//! The whole program on inputs that need more than a case of `tests/cases`: full disks, hostile trees, secrets, and failures of
//! the system.

mod calls;
mod circumstances;
mod failed_sync;
mod full_disk;
mod lab;
mod program;
mod read_only;
mod security;
mod traps;
// The cases and tests/crash share it, and use other parts.
#[allow(dead_code)]
mod tree;

use program::{Output, prepivot};

/// Whether this process may give files away, as provisioning does.
pub fn may_chown() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        prepivot::base::testing::skip("files are given to other users, which needs root");
    }
    may
}
