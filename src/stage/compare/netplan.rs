//! netplan's files: notations that mean the same to it, and what cloud-init leaves out.

use crate::document::{Map, Value, json, yaml};
use std::collections::BTreeSet;

/// A document without what netplan itself writes in another way: cloud-init has its library write the file. Documents elsewhere stay
/// as they are.
pub fn normal(path: &str, mut document: Value) -> Value {
    if path.starts_with("/etc/netplan/") {
        normalise(&mut document);
    }
    document
}

/// Makes texts of numbers, puts lists into one order where another means the same, and removes what is the default.
fn normalise(value: &mut Value) {
    match value {
        Value::Int(number) => *value = number.to_string().into(),
        Value::List(list) => list.iter_mut().for_each(normalise),
        Value::Map(map) => {
            let keys: Vec<String> = map.keys().map(str::to_owned).collect();
            for key in &keys {
                // The order of name servers is the one in which they are asked.
                if let Some(item) = map.get_mut(key).filter(|_| key != "nameservers") {
                    normalise(item);
                    by_key(key, item);
                }
            }
            if map.get("link-local").is_some_and(|list| json::to_string(list) == r#"["ipv6"]"#) {
                map.remove("link-local");
            }
        }
        _ => {}
    }
}

fn by_key(key: &str, value: &mut Value) {
    match (key, value) {
        ("interfaces" | "addresses", Value::List(list)) => {
            let mut texts: Vec<String> = list.iter().map(text).collect();
            texts.sort();
            *list = texts.into_iter().map(Value::from).collect();
        }
        ("access-points", Value::Map(points)) => {
            let names: Vec<String> = points.keys().map(str::to_owned).collect();
            for name in &names {
                if let Some(Value::Map(point)) = points.get_mut(name) {
                    access_point(point);
                }
            }
        }
        _ => {}
    }
}

/// An access point's password is short for an authentication, and its mode is `infrastructure` if it has none (netplan-yaml(5),
/// "Properties for device type wifis:").
fn access_point(point: &mut Map) {
    if point.get("mode").and_then(Value::as_str) == Some("infrastructure") {
        point.remove("mode");
    }
    if point.contains_key("auth") {
        return;
    }
    if let Some(password) = point.remove("password") {
        let mut auth = Map::new();
        auth.insert("key-management", "psk");
        auth.insert("password", password);
        point.insert("auth", auth);
    }
}

/// The document of `wanted` without what it has at or below `keys` and the one of `there` does not, as text. None if one of them is no
/// document.
pub fn without_more(path: &str, there: &str, wanted: &str, keys: &str) -> Option<String> {
    let parse = |text: &str| yaml::parse(path, text).ok();
    let mut wanted = parse(wanted)?;
    leave_out(Some(&parse(there)?), &mut wanted, keys, false);
    Some(json::to_string(&wanted))
}

/// `is_below`: one of the keys is above.
fn leave_out(there: Option<&Value>, wanted: &mut Value, keys: &str, is_below: bool) {
    match wanted {
        Value::List(list) if is_below => {
            let there = there.and_then(Value::as_list).unwrap_or_default();
            let there: BTreeSet<String> = there.iter().map(text).collect();
            list.retain(|item| there.contains(&text(item)));
        }
        Value::Map(map) => {
            let mut missing: Vec<String> = map.keys().map(str::to_owned).collect();
            missing.retain(|key| {
                let there = there.and_then(|there| there.get(key));
                let is_below = is_below || keys.split(", ").any(|one| one == key);
                if let Some(item) = map.get_mut(key) {
                    leave_out(there, item, keys, is_below);
                }
                is_below && there.is_none()
            });
            map.remove_all(&missing);
        }
        _ => {}
    }
}

/// The same text for values that mean the same.
fn text(value: &Value) -> String {
    let mut value = json::sorted(value);
    normalise(&mut value);
    json::to_string(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_an_access_point_is_an_authentication() {
        let of = |path: &str, text: &str| normal(path, yaml::parse("x", text).unwrap());
        let point = |point: &str| format!("network: {{wifis: {{w: {{access-points: {{'a;': {point}}}}}}}}}");
        let (short, long) = (point("{password: x}"), point("{auth: {key-management: psk, password: x}}"));
        assert_eq!(of("/etc/netplan/50.yaml", &short), of("/etc/netplan/50.yaml", &long));
        assert_ne!(of("/srv/50.yaml", &short), of("/srv/50.yaml", &long));
        let other = point("{auth: {key-management: psk, password: y}}");
        assert_ne!(of("/etc/netplan/50.yaml", &short), of("/etc/netplan/50.yaml", &other));
        assert_eq!(
            of("/etc/netplan/50.yaml", &point("{mode: infrastructure}")),
            of("/etc/netplan/50.yaml", &point("{}"))
        );
        assert_ne!(of("/etc/netplan/50.yaml", &point("{mode: adhoc}")), of("/etc/netplan/50.yaml", &point("{}")));
        let of_company = point("{auth: {key-management: eap, password: x}}");
        assert_ne!(of("/etc/netplan/50.yaml", &short), of("/etc/netplan/50.yaml", &of_company));
    }

    #[test]
    fn numbers_orders_and_defaults_mean_the_same() {
        let of = |text: &str| normal("/etc/netplan/50.yaml", yaml::parse("x", text).unwrap());
        let bond = |text: &str| of(&format!("network: {{bonds: {{b: {text}}}}}"));
        assert_eq!(bond("{interfaces: [a, b], mtu: 9}"), bond("{interfaces: [b, a], mtu: '9'}"));
        assert_eq!(bond("{mtu: 9, link-local: [ipv6]}"), bond("{mtu: 9}"));
        assert_ne!(bond("{mtu: 9, link-local: []}"), bond("{mtu: 9}"));
        assert_ne!(bond("{interfaces: [a, b]}"), bond("{interfaces: [a]}"));
        assert_eq!(bond("{addresses: [x, {y: {lifetime: 0}}]}"), bond("{addresses: [{y: {lifetime: '0'}}, x]}"));
        assert_ne!(bond("{nameservers: {addresses: [x, y]}}"), bond("{nameservers: {addresses: [y, x]}}"));
    }
}
