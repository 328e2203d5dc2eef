//! OpenNebula: context.sh on a drive.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source {
    name: "OpenNebula",
    marks: &[
        Mark::Seed("opennebula", &["context.sh"]),
        Mark::Seed("opennebula", &["meta-data"]),
        Mark::Label("CONTEXT"),
        Mark::Label("CDROM"),
    ],
    ..Source::NEW
};
