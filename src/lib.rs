//! prepivot: cloud-init's job, done before the root pivot.
//!
//! Data flows in one direction: [`machine`] (facts) → [`detect`] (which datasources there can be) → [`source`] (finds
//! and reads one) → [`instance`] (what it says, as plain data) → [`userdata`] (parts, and the merged configuration) →
//! [`module`] (one job each) → [`root`] (the only way to change the disk). [`network`] reads network configurations
//! and renders them as files. [`trust`] measures and checks what a source gave, before it is used.
//!
//! [`stage`] says what runs when, and [`cli`] is the command line. The machine is read through [`machine`], [`drive`]
//! and [`link`] only. [`base`], [`document`], [`schema`] and [`system`] are shared.

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
pub mod trust;
pub mod userdata;
