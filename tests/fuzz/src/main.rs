//! The targets of tests/fuzz under libFuzzer: `PREPIVOT_TARGET` names the one to run. tests/fuzz/run builds and starts this.

#![no_main]

mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("PREPIVOT_TARGET").unwrap_or_default();
    match targets::TARGETS.iter().find(|target| target.name == name) {
        Some(target) => *target,
        None => {
            let names: Vec<_> = targets::TARGETS.iter().map(|target| target.name).collect();
            eprintln!("PREPIVOT_TARGET: expected one of {}", names.join(" "));
            std::process::exit(2);
        }
    }
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
