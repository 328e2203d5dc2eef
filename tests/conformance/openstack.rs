//! network_data.json and what cloud-init makes of it.

use crate::cases::{Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::base::problem::Problems;
use prepivot::document::{Value, json};
use prepivot::network::{Macs, read::openstack};

fn check(case: &Value) -> Outcome {
    let known = case.get("known_macs").and_then(Value::as_map).expect("known MACs");
    let macs = Macs::from_iter(known.iter().map(|(mac, name)| (mac, name.as_str().expect("a name"))));
    let input = case.get("input").expect("an input");
    // A boot goes on with what there is.
    for macs in [&macs, &Macs::default()] {
        openstack::FORMAT.read("network_data.json", input, macs, &Problems::new()).expect("a network");
    }
    let expected = case.get("expected_v1").filter(|v| !v.is_null()).map(json::to_string_sorted);
    match (openstack::to_v1(input, &macs, &Problems::new()), expected) {
        (Ok(ours), Some(expected)) if json::to_string_sorted(&ours) == expected => Outcome::Agrees,
        (Err(_), None) => Outcome::Agrees,
        (ours, expected) => Outcome::Differs(vec![format!("expected {expected:?}, got {ours:?}")]),
    }
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "openstack_network.json", exceptions: &[], kinds: &[] }.trials(check)
}
