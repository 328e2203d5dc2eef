//! Detects which datasources this machine can have, as cloud-init's ds-identify does, by a function of facts.
//!
//! Each source's file lists the marks that identify it ([`crate::source`]); this part evaluates them. `facts` collects
//! the facts, `policy` is the configuration by the image and the kernel command line, and `report` combines the
//! verdicts.

mod facts;
mod guestinfo;
mod mark;
mod policy;
mod report;
pub mod virt;

pub use facts::{Facts, Filesystem, Kernel, MAX_ENTRIES, Platform};
pub use guestinfo::Guestinfo;
pub use mark::{Candidate, Mark, SEEDS, Setting, judge, label_reason};
pub use policy::{
    CLOUD_CFG, CLOUD_CFG_D, DISABLED, MARKER, Mode, NONE, Policy, Requested, VARIABLE, disabled, disabled_by_policy,
    named_source,
};
pub use report::{Candidacy, Outcome, Report, identify};

/// The verdict on a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The machine has a mark of it.
    Found,
    /// The machine has no mark of it, but nothing rules it out.
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
    /// The source exists, for the reason `why`.
    pub fn found(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::Found, why: why.into() })
    }

    /// The source may be there, for the reason `why`.
    pub fn maybe(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::Maybe, why: why.into() })
    }

    /// The source is not there, whatever other marks say.
    pub fn never(why: impl Into<String>) -> Option<Finding> {
        Some(Finding { verdict: Verdict::NotFound, why: why.into() })
    }
}
