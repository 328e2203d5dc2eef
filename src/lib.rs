//! prepivot: cloud-init's job, done before the root pivot.
//!
//! Data goes one way: machine → source → instance → userdata → config → module → root.

#![forbid(unsafe_code)]

pub mod base64;
pub mod cancel;
pub mod cli;
pub mod clock;
pub mod deadline;
pub mod document;
pub mod drive;
pub mod error;
pub mod event;
pub mod glob;
pub mod instance;
pub mod link;
pub mod logging;
pub mod machine;
pub mod module;
pub mod network;
pub mod root;
pub mod schema;
pub mod sort;
pub mod source;
pub mod stage;
pub mod tar;
#[doc(hidden)]
pub mod testing;
pub mod userdata;
