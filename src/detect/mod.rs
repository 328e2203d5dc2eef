//! Which datasources this machine can have, and so whether the network may be asked: what cloud-init's ds-identify decides,
//! as a function of a tree's files.
//!
//! `facts` reads what there is, `table` has a line for each source with the marks it is known by, `asked` is what the image
//! and the kernel command line want, and `report` puts the verdicts together.

mod asked;
mod checks;
mod clouds;
mod facts;
mod guestinfo;
mod hypervisors;
mod marks;
mod report;
mod services;
mod table;
mod virt;

pub use asked::{Asked, Mode, Policy, disabled, disabled_by_policy, name_on};
pub use facts::{Facts, Filesystem, Kernel, Platform};
pub use guestinfo::Guestinfo;
pub use report::{Line, Outcome, Report, identify};
pub use services::{Certainty, MAYBE_TIME, Service};
pub use table::{SOURCES, Source, named};

/// What is said of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The machine has a mark of it.
    Found,
    /// Nothing says that it can't be there.
    Maybe,
    NotFound,
}

impl Verdict {
    /// The verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Found => "found",
            Verdict::Maybe => "maybe",
            Verdict::NotFound => "not found",
        }
    }
}

/// A verdict and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    pub why: String,
}

impl Finding {
    /// The source is there, because of `why`.
    fn found(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::Found, why: why.into() })
    }

    /// It may be there.
    fn maybe(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::Maybe, why: why.into() })
    }

    /// It can't be there, whatever other marks say.
    fn never(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::NotFound, why: why.into() })
    }
}
