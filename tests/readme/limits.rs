//! Limits that the manual states are the program's constants.

use crate::pages;

const SMALL: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// The value of a constant, as its source has it.
fn constant(file: &str, name: &str) -> String {
    let text = pages::text(&format!("src/{file}"));
    let rest = text.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("src/{file}: no {name}")).1;
    rest.split_once(" = ").and_then(|(_, value)| value.split(';').next()).expect("a value").to_owned()
}

/// The ways in which the manual may write a constant's value.
fn spellings(value: &str) -> Vec<String> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().unwrap_or_else(|_| panic!("{value}: not known"));
    let inner = |kind: &str| value.strip_prefix(kind).and_then(|rest| rest.strip_suffix(')')).map(number);
    if let Some(seconds) = inner("Duration::from_secs(") {
        return vec![seconds.to_string(), (seconds as f64 / 60.0).to_string()];
    }
    if let Some(thousandths) = inner("Duration::from_millis(") {
        return vec![(thousandths as f64 / 1000.0).to_string()];
    }
    for (shift, unit) in [(" << 20", "MB"), (" << 10", "KB")] {
        if let Some(size) = value.strip_suffix(shift) {
            return vec![format!("{size} {unit}")];
        }
    }
    let word = number(value).checked_sub(1).and_then(|at| SMALL.get(usize::try_from(at).ok()?));
    let mut all = vec![number(value).to_string(), with_commas(number(value))];
    all.extend(word.map(|word| (*word).to_owned()));
    all
}

/// `4,000,000`
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn manuals_limits_equal_the_programs() {
    let mut page = String::new();
    let mut count = 0;
    for line in include_str!("limits.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some(row) = line.strip_prefix("    ") else {
            let text = pages::page(&format!("{}/{line}.md", pages::MANUAL)).text;
            page = text.split_whitespace().collect::<Vec<_>>().join(" ");
            continue;
        };
        let (file, row) = row.split_once(' ').expect("a file");
        if let Some((literal, words)) = row.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
            assert!(pages::text(&format!("src/{file}")).contains(literal), "src/{file}: no {literal}; {words}");
            assert!(page.contains(words), "the manual does not have: {words}");
        } else {
            let (name, words) = row.split_once(": ").expect("a constant and words");
            let value = constant(file, name);
            let stated = spellings(&value).iter().any(|number| page.contains(&words.replace("{}", number)));
            assert!(
                words.contains("{}") && stated,
                "src/{file} {name} is {value}; the manual does not say so: {words}"
            );
        }
        count += 1;
    }
    assert!(count > 50, "{count} limits");
}
