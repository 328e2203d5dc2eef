//! Annotates a document: marks the lines that have problems, and lists the problems below it.

use super::Deviations;
use crate::base::problem::Problem;
use crate::document::yaml;
use std::collections::HashMap;

/// `text` with `# E1,D1` at the end of lines, followed by the errors and deprecations, in cloud-init's
/// format.
pub fn annotated(text: &str, found: &Deviations) -> String {
    let lines = lines(text, found);
    let mut labels: Vec<(usize, String)> = Vec::new();
    let mut notes = String::new();
    for (title, letter, problems) in [("Errors", 'E', &found.errors), ("Deprecations", 'D', &found.deprecations)] {
        let mut by_line: Vec<(Place, &Problem)> = problems.iter().map(|p| (place_of(&p.key, &lines), p)).collect();
        crate::base::sort::by(&mut by_line, |a, b| a.0.line.cmp(&b.0.line));
        if !by_line.is_empty() {
            notes += &format!("# {title}: -------------\n");
        }
        for (n, (place, problem)) in by_line.iter().enumerate() {
            notes += &match place.exact {
                true => format!("# {letter}{}: {}\n", n + 1, problem.reason),
                false => format!("# {letter}{}: {problem}\n", n + 1),
            };
            labels.push((place.line, format!("{letter}{}", n + 1)));
        }
        if !by_line.is_empty() {
            notes += "\n\n";
        }
    }
    crate::base::sort::by(&mut labels, |a, b| a.0.cmp(&b.0));
    let mut labels = labels.into_iter().peekable();
    let mut out = String::new();
    for (n, line) in text.split('\n').enumerate() {
        out += line;
        let mut before = "\t\t# ";
        while let Some((_, label)) = labels.next_if(|(line, _)| *line <= n + 1) {
            out += before;
            out += &label;
            before = ",";
        }
        out.push('\n');
    }
    out + &notes
}

/// The line of each key with problems, and of the mappings and lists around it.
fn lines(text: &str, found: &Deviations) -> HashMap<String, usize> {
    let all = found.errors.iter().chain(&found.deprecations);
    yaml::lines(text, all.flat_map(|p| upwards(&p.key)).map(str::to_owned))
}

/// Where a problem is.
struct Place {
    /// From 1.
    line: usize,
    /// Whether it is the line of the key itself. Otherwise it is of something around it, and the note
    /// contains the path.
    exact: bool,
}

/// The place of a path: its own line, else that of the nearest mapping or list around it.
fn place_of(path: &str, lines: &HashMap<String, usize>) -> Place {
    if let Some(line) = path.strip_prefix("format-l").and_then(|p| p.split('.').next()?.parse().ok()) {
        return Place { line, exact: true };
    }
    let found = upwards(path).find_map(|p| Some(Place { line: *lines.get(p)?, exact: p == path }));
    found.unwrap_or(Place { line: 1, exact: path.is_empty() })
}

/// A path, the path of its parent, and so on.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;
    use crate::schema::cloud_config;

    #[test]
    fn marks_and_notes() {
        let text = "#cloud-config\nusers:\n- name: a\n  sudoo: x\n- {gecos: b, uid: '7'}\nhostname: 3\n";
        let Ok(Value::Map(config)) = yaml::parse("t", text) else { panic!() };
        let marked = annotated(text, &cloud_config(&config));
        assert_eq!(
            marked,
            "#cloud-config\nusers:\n- name: a\n  sudoo: x\t\t# E1\n- {gecos: b, uid: '7'}\t\t# E2,D1\nhostname: 3\t\t# E3\n\n\
             # Errors: -------------\n# E1: there is no such key\n\
             # E2: expected one of the keys name, snapuser\n\
             # E3: expected a string, found an integer\n\n\n\
             # Deprecations: -------------\n# D1:  Changed in version 22.3. Use an integer instead.\n\n\n"
        );
        assert_eq!(yaml::parse("t", &marked).unwrap(), Value::Map(config));
    }

    #[test]
    fn what_has_no_line_of_its_own() {
        let problem = |path: &str| Problem::new(crate::base::problem::Severity::Error, "", path, "w");
        let paths = ["", "b.0.c", "format-l2.c1", "format-l2", "format-lx.c9", "format-l99.c1"];
        let found = Deviations { errors: paths.map(problem).into(), deprecations: Vec::new() };
        let marked = annotated("a: &a [{c: 1}]\nb: *a", &found);
        assert!(marked.starts_with("a: &a [{c: 1}]\t\t# E1,E2\nb: *a\t\t# E3,E4,E5\n# Errors"), "{marked}");
        assert!(
            marked.contains("# E1: w\n# E2: format-lx.c9: w\n# E3: b.0.c: w\n") && marked.ends_with("# E6: w\n\n\n"),
            "{marked}"
        );
    }
}
