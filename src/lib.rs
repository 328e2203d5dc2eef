//! prepivot: cloud-init's job, done before the root pivot.
//!
//! Data goes one way: machine → source → instance → userdata → config → module → root.

#![forbid(unsafe_code)]

pub mod base;
pub mod cli;
pub mod detect;
pub mod document;
pub mod drive;
pub mod instance;
pub mod link;
pub mod machine;
pub mod module;
pub mod network;
pub mod root;
pub mod schema;
pub mod source;
pub mod stage;
pub mod system;
pub mod userdata;
