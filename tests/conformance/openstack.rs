//! network_data.json and what cloud-init makes of it.

use prepivot::document::{Value, json};
use prepivot::network::{Macs, read::openstack};

#[test]
fn network_data_becomes_the_version_1_that_cloud_init_makes() {
    let Some(cases) = prepivot::base::testing::vectors("openstack_network.json") else { return };
    let mut same = 0;
    for case in cases.as_list().expect("a list of cases") {
        let name = case.get("name").and_then(Value::as_str).expect("a name");
        let known = case.get("known_macs").and_then(Value::as_map).expect("known MACs");
        let macs = Macs::from_iter(known.iter().map(|(mac, name)| (mac, name.as_str().expect("a name"))));
        let input = case.get("input").expect("an input");
        let ours = openstack::to_v1(input, &macs);
        match case.get("expected_v1").filter(|v| !v.is_null()) {
            Some(expected) => {
                let ours = ours.unwrap_or_else(|e| panic!("{name}: {e}"));
                let (ours, expected) = (json::to_string_sorted(&ours), json::to_string_sorted(expected));
                assert_eq!(ours, expected, "{name}");
            }
            None => assert!(ours.is_err(), "{name}: expected an error"),
        }
        // A boot goes on with what there is.
        openstack::read(input, &macs).expect("a network");
        openstack::read(input, &Macs::default()).expect("a network");
        same += 1;
    }
    println!("network_data.json: {same} agree");
}
