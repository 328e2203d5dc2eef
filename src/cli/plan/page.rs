//! A plan as a page: one file, with neither scripts nor anything from elsewhere.

use super::drawing;
use super::formats::markup;
use crate::document::Value;
use crate::stage::plan::NETWORK;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
/// The largest page, in bytes; what would come after that is left out, which the page says.
const MAX_PAGE: usize = 8 << 20;

/// The page for the document of a plan.
pub fn html(plan: &Value) -> String {
    let mut page = Page { out: String::new(), plan };
    page.head();
    page.problems();
    page.stages();
    page.documents();
    page.changes();
    page.accounts();
    page.network();
    page.mounts_and_packages();
    page.commands();
    page.out += "</main></body></html>\n";
    page.out
}

struct Page<'p> {
    out: String,
    plan: &'p Value,
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_list).unwrap_or_default()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn int(value: &Value, key: &str) -> i64 {
    value.get(key).and_then(Value::as_int).unwrap_or_default()
}

/// The values of a list of texts, escaped, with commas between them.
fn joined(value: &Value, key: &str) -> String {
    list(value, key).iter().filter_map(Value::as_str).map(markup).collect::<Vec<_>>().join(", ")
}

impl Page<'_> {
    fn head(&mut self) {
        let target = markup(text(self.plan, "target"));
        let instance = self.plan.get("instance").cloned().unwrap_or_default();
        let _ = write!(
            self.out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
             <link rel=\"icon\" href=\"data:,\"><title>Plan for {target}</title><style>{STYLE}</style></head><body><header>\
             <h1>Plan for {target}</h1><p>Instance <code>{}</code>, host name <code>{}</code>, datasource {}, distribution {}. \
             Nothing was changed.</p>",
            markup(text(&instance, "id")),
            markup(text(&instance, "hostname")),
            markup(text(&instance, "datasource")),
            markup(text(self.plan, "distribution")),
        );
        self.out += "<nav aria-label=\"Sections\"><ul>";
        for (id, title, key) in SECTIONS {
            let count = key.split(' ').map(|key| list(self.plan, key).len()).sum::<usize>();
            let count = if key.is_empty() { String::new() } else { format!(" ({count})") };
            let _ = write!(self.out, "<li><a href=\"#{id}\">{title}{count}</a></li>");
        }
        self.out += "</ul></nav></header><main>";
    }

    /// Begins a section.
    fn section(&mut self, id: &str) {
        let title = SECTIONS.iter().find(|section| section.0 == id).map(|section| section.1).unwrap_or_default();
        let _ = writeln!(self.out, "<h2 id=\"{id}\">{title}</h2>");
    }

    /// Whether there is room for more. If not, that is said once.
    fn has_room(&mut self) -> bool {
        let has_room = self.out.len() < MAX_PAGE;
        if !has_room && !self.out.ends_with(CUT) {
            self.out += CUT;
        }
        has_room
    }

    fn nothing(&mut self, of: &[Value]) {
        if of.is_empty() {
            self.out += "<p class=\"dim\">None.</p>\n";
        }
    }

    fn problems(&mut self) {
        self.section("problems");
        let problems = list(self.plan, "problems");
        self.nothing(problems);
        self.out += "<ul>";
        for problem in problems {
            if !self.has_room() {
                break;
            }
            let place = match int(problem, "line") {
                0 => markup(text(problem, "document")),
                line => self.place(text(problem, "document"), line),
            };
            let shown = sentence(problem);
            let _ = writeln!(self.out, "<li>{place}: {shown}</li>");
        }
        self.out += "</ul>";
    }

    /// A link to a line of a document, which has this text; only the text if the page does not show the line.
    fn link(&self, document: &str, line: i64, text: &str) -> String {
        let found = list(self.plan, "documents").iter().enumerate().find(|(_, d)| self::text(d, "path") == document);
        match found.filter(|(_, d)| usize::try_from(line).is_ok_and(|line| line <= list(d, "lines").len())) {
            Some((at, _)) => format!("<a href=\"#d{at}l{line}\">{}</a>", markup(text)),
            None => markup(text),
        }
    }

    /// A link to a line of a document, called by its path and number.
    fn place(&self, document: &str, line: i64) -> String {
        self.link(document, line, &format!("{document}:{line}"))
    }

    /// Where a result came from: the lines and their keys.
    fn from(&self, result: &Value) -> String {
        let from = list(result, "from").iter().map(|origin| {
            let place = self.place(text(origin, "document"), int(origin, "line"));
            match text(origin, "key") {
                "" => place,
                key => format!("{place} <code>{}</code>", markup(key)),
            }
        });
        let from: Vec<String> = from.collect();
        if from.is_empty() { "<span class=\"dim\">no line of a document</span>".into() } else { from.join(", ") }
    }

    fn stages(&mut self) {
        self.section("stages");
        self.out += "<ol class=\"stages\">";
        for (number, stage) in list(self.plan, "stages").iter().enumerate() {
            let _ = write!(
                self.out,
                "<li><h3>{}</h3><p class=\"dim\">{}<br><code>{}</code></p><ol>",
                markup(text(stage, "name")),
                markup(text(stage, "when")),
                markup(text(stage, "unit"))
            );
            let name = text(stage, "name");
            for (at, module) in list(stage, "modules").iter().enumerate() {
                let module_name = text(module, "name");
                let of = |result: &&Value| text(result, "module") == module_name && text(result, "when") == name;
                let changes = list(self.plan, "changes").iter().filter(of).count();
                let commands = list(self.plan, "commands").iter().filter(of).count();
                let counts = [(changes, "change"), (commands, "command")].into_iter().filter(|(n, _)| *n > 0);
                let counts: Vec<String> =
                    counts.map(|(n, what)| format!("{n} {what}{}", if n == 1 { "" } else { "s" })).collect();
                let keys: Vec<String> = list(module, "from")
                    .iter()
                    .map(|o| self.link(text(o, "document"), int(o, "line"), text(o, "key")))
                    .collect();
                let why = if keys.is_empty() { String::new() } else { format!(" because of {}", keys.join(", ")) };
                let what = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
                let class = if keys.is_empty() && counts.is_empty() { " class=\"dim\"" } else { "" };
                let _ = write!(self.out, "<li id=\"s{number}m{at}\"{class}>{}{what}{why}</li>", markup(module_name));
            }
            self.out += "</ol></li>";
        }
        self.out += "</ol>\n";
    }

    /// The number of the document that an origin names.
    fn number_of(&self, origin: &Value) -> usize {
        let path = text(origin, "document");
        list(self.plan, "documents").iter().position(|document| text(document, "path") == path).unwrap_or_default()
    }

    /// What each line of the documents led to: links by document and line.
    fn results(&self) -> BTreeMap<(usize, i64), Vec<String>> {
        let mut results: BTreeMap<(usize, i64), Vec<String>> = BTreeMap::new();
        let none = Value::Null;
        let network = self.plan.get("network").unwrap_or(&none);
        for (at, interface) in list(network, "interfaces").iter().enumerate() {
            for origin in list(interface, "from") {
                let link = format!("<a href=\"#i{at}\">device {}</a>", markup(text(interface, "name")));
                results.entry((self.number_of(origin), int(origin, "line"))).or_default().push(link);
            }
        }
        for (key, letter) in LINKED {
            for (at, result) in list(self.plan, key).iter().enumerate() {
                let name = match key {
                    "changes" => format!("{} {}", text(result, "change"), text(result, "path")),
                    "commands" => short_command(result),
                    "users" => format!("user {}", text(result, "name")),
                    "groups" => format!("group {}", text(result, "name")),
                    "mounts" => format!("mount {}", text(result, "folder")),
                    _ => format!("package {}", text(result, "name")),
                };
                for origin in list(result, "from") {
                    let links = results.entry((self.number_of(origin), int(origin, "line"))).or_default();
                    if links.len() < MAX_LINKS {
                        let mut name = name.clone();
                        crate::base::text::cut(&mut name, 80);
                        links.push(format!("<a href=\"#{letter}{at}\">{}</a>", markup(&name)));
                    }
                }
            }
        }
        self.modules_of(&mut results);
        results
    }

    /// Lines that led to nothing else led to a module at least, which takes them as its settings.
    fn modules_of(&self, results: &mut BTreeMap<(usize, i64), Vec<String>>) {
        let mut idle: BTreeMap<(usize, i64), Vec<String>> = BTreeMap::new();
        for (number, stage) in list(self.plan, "stages").iter().enumerate() {
            for (at, module) in list(stage, "modules").iter().enumerate() {
                for origin in list(module, "from") {
                    let links = idle.entry((self.number_of(origin), int(origin, "line"))).or_default();
                    links.push(format!("<a href=\"#s{number}m{at}\">module {}</a>", markup(text(module, "name"))));
                }
            }
        }
        for (line, links) in idle {
            results.entry(line).or_insert(links);
        }
    }

    fn documents(&mut self) {
        self.section("documents");
        let results = self.results();
        let (documents, problems) = (list(self.plan, "documents"), list(self.plan, "problems"));
        for (at, document) in documents.iter().enumerate() {
            let path = text(document, "path");
            let _ = write!(
                self.out,
                "<h3>{}: {}</h3><table class=\"doc\"><thead><tr><th scope=\"col\">Line</th><th scope=\"col\">Text</th>\
                 <th scope=\"col\">Leads to</th></tr></thead><tbody>",
                markup(text(document, "name")),
                markup(path)
            );
            for (line, shown) in list(document, "lines").iter().enumerate() {
                if !self.has_room() {
                    break;
                }
                let line = i64::try_from(line).unwrap_or(i64::MAX) + 1;
                let here = problems.iter().filter(|p| text(p, "document") == path && int(p, "line") == line);
                let mut beside: Vec<String> = here.map(sentence).collect();
                beside.extend(results.get(&(at, line)).cloned().unwrap_or_default());
                let _ = writeln!(
                    self.out,
                    "<tr id=\"d{at}l{line}\"><td>{line}</td><td>{}</td><td>{}</td></tr>",
                    markup(shown.as_str().unwrap_or_default()),
                    beside.join("<br>")
                );
            }
            let more = int(document, "line_count") - i64::try_from(list(document, "lines").len()).unwrap_or(i64::MAX);
            let more = if more > 0 { format!("<p class=\"dim\">And {more} more lines.</p>") } else { String::new() };
            let _ = writeln!(self.out, "</tbody></table>{more}");
        }
    }

    fn changes(&mut self) {
        self.section("changes");
        let changes = list(self.plan, "changes");
        self.nothing(changes);
        for (at, change) in changes.iter().enumerate() {
            if !self.has_room() {
                break;
            }
            let mode = match (text(change, "mode"), text(change, "owner")) {
                ("", "") => String::new(),
                (mode, owner) => format!(" ({mode} {}:{})", markup(owner), markup(text(change, "group"))),
            };
            let target = if text(change, "target").is_empty() {
                String::new()
            } else {
                format!(" → {}", markup(text(change, "target")))
            };
            let _ = write!(
                self.out,
                "<details id=\"c{at}\"><summary>{} <code>{}</code>{target}{mode} <span class=\"dim\">{}</span></summary>\
                 <p>{} From {}.</p>",
                markup(text(change, "change")),
                markup(text(change, "path")),
                markup(text(change, "when")),
                by(change),
                self.from(change)
            );
            if change.get("masked").is_some_and(Value::is_true) {
                self.out += "<p class=\"dim\">Not everyone may read it: its content is not shown.</p>";
            } else if !text(change, "diff").is_empty() {
                self.out += "<pre>";
                for line in text(change, "diff").lines() {
                    let class = if line.starts_with('+') { "add" } else { "del" };
                    let _ = writeln!(self.out, "<span class=\"{class}\">{}</span>", markup(line));
                }
                self.out += "</pre>";
            }
            self.out += "</details>\n";
        }
        let state = int(self.plan, "state_changes");
        let _ = writeln!(
            self.out,
            "<p class=\"dim\">And {state} changes of prepivot's own state in /var/lib/cloud and /run/cloud-init.</p>"
        );
    }

    /// A table with a row for each value of a list.
    fn table(&mut self, key: &str, letter: char, heads: &[&str], row: &dyn Fn(&Self, &Value) -> Vec<String>) {
        let values = list(self.plan, key);
        self.nothing(values);
        if values.is_empty() {
            return;
        }
        let name = markup(key);
        let _ = write!(
            self.out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table><thead><tr>"
        );
        for head in heads {
            let _ = write!(self.out, "<th scope=\"col\">{head}</th>");
        }
        self.out += "</tr></thead><tbody>";
        for (at, value) in values.iter().enumerate() {
            if !self.has_room() {
                break;
            }
            let cells: String = row(self, value).iter().map(|cell| format!("<td>{cell}</td>")).collect();
            let _ = writeln!(self.out, "<tr id=\"{letter}{at}\">{cells}</tr>");
        }
        self.out += "</tbody></table></div>\n";
    }

    fn accounts(&mut self) {
        self.section("users");
        let heads = ["Name", "IDs", "Home", "Shell", "Groups", "Password", "Keys", "From"];
        self.table("users", 'u', &heads, &|page, user| {
            let new = if user.get("new").is_some_and(Value::is_true) { " (new)" } else { "" };
            let keys = list(user, "keys")
                .iter()
                .filter_map(Value::as_str)
                .map(|key| format!("<code>{}</code>", markup(&short_key(key))));
            vec![
                format!("{}{new}", markup(text(user, "name"))),
                format!("{}:{}", markup(text(user, "uid")), markup(text(user, "gid"))),
                markup(text(user, "home")),
                markup(text(user, "shell")),
                joined(user, "groups"),
                markup(text(user, "password")),
                keys.collect::<Vec<_>>().join("<br>"),
                page.from(user),
            ]
        });
        self.out += "<h3>Groups</h3>";
        self.table("groups", 'g', &["Name", "ID", "Members", "From"], &|page, group| {
            let new = if group.get("new").is_some_and(Value::is_true) { " (new)" } else { "" };
            let name = format!("{}{new}", markup(text(group, "name")));
            vec![name, markup(text(group, "gid")), joined(group, "members"), page.from(group)]
        });
    }

    fn network(&mut self) {
        self.section("network");
        let Some(network) = self.plan.get("network").filter(|network| !network.is_null()) else {
            self.out += "<p class=\"dim\">No document configures it.</p>\n";
            return;
        };
        let _ = write!(self.out, "<p>Written for {}.", markup(text(network, "stack")));
        if !list(network, "dns").is_empty() {
            let _ = write!(self.out, " Name servers of the machine: {}.", joined(network, "dns"));
        }
        let _ = write!(
            self.out,
            "</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Drawing of the network\">{}</div>",
            drawing::svg(list(network, "interfaces"))
        );
        self.out += "<details open><summary>As a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Devices\"><table><thead><tr><th scope=\"col\">Device</th><th scope=\"col\">Type</th>\
                     <th scope=\"col\">On</th><th scope=\"col\">Addresses</th><th scope=\"col\">Routes</th><th scope=\"col\">DNS</th>\
                     <th scope=\"col\">From</th></tr></thead><tbody>";
        for (at, interface) in list(network, "interfaces").iter().enumerate() {
            if !self.has_room() {
                break;
            }
            let _ = writeln!(
                self.out,
                "<tr id=\"i{at}\"><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                markup(text(interface, "name")),
                markup(text(interface, "type")),
                markup(text(interface, "detail")),
                joined(interface, "below"),
                joined(interface, "addresses"),
                joined(interface, "routes"),
                joined(interface, "dns"),
                self.from(interface)
            );
        }
        self.out += "</tbody></table></div></details>\n";
    }

    fn mounts_and_packages(&mut self) {
        self.section("mounts");
        self.table("mounts", 'm', &["Device", "Folder", "Type", "Options", "From"], &|page, mount| {
            let cell = |key| markup(text(mount, key));
            vec![cell("device"), cell("folder"), cell("type"), cell("options"), page.from(mount)]
        });
        self.section("packages");
        self.table("packages", 'p', &["Package", "From"], &|page, package| {
            vec![markup(text(package, "name")), page.from(package)]
        });
    }

    fn commands(&mut self) {
        self.section("commands");
        self.table("commands", 'r', &["Stage", "Command", "By", "From"], &|page, command| {
            vec![
                markup(text(command, "when")),
                format!("<code>{}</code>", markup(&shown_command(command))),
                markup(text(command, "module")),
                page.from(command),
            ]
        });
    }
}

/// The sections: identifier, title, and the lists whose entries are counted.
const SECTIONS: [(&str, &str, &str); 9] = [
    ("problems", "Problems", "problems"),
    ("stages", "Stages", ""),
    ("documents", "Documents", ""),
    ("changes", "Files", "changes"),
    ("users", "Users and groups", "users"),
    ("network", "Network", ""),
    ("mounts", "Mounts", "mounts"),
    ("packages", "Packages", "packages"),
    ("commands", "Commands", "commands"),
];
/// The lists whose entries lines lead to, each with the letter of its entries' identifiers.
const LINKED: [(&str, char); 6] =
    [("changes", 'c'), ("commands", 'r'), ("users", 'u'), ("groups", 'g'), ("mounts", 'm'), ("packages", 'p')];
/// The most links of a line.
const MAX_LINKS: usize = 50;
const CUT: &str = "<p class=\"error\">The page is full: the rest is left out.</p>";

/// A problem as a sentence.
fn sentence(problem: &Value) -> String {
    let severity = markup(text(problem, "severity"));
    let key = if text(problem, "key").is_empty() {
        String::new()
    } else {
        format!("<code>{}</code>: ", markup(text(problem, "key")))
    };
    let fix =
        if text(problem, "fix").is_empty() { String::new() } else { format!(". {}", markup(text(problem, "fix"))) };
    format!(
        "<span class=\"{severity}\"><strong>{severity}</strong> {key}{}{fix}</span>",
        markup(text(problem, "problem"))
    )
}

/// What made a change.
fn by(change: &Value) -> String {
    match text(change, "module") {
        "" => "By prepivot itself.".into(),
        NETWORK => "By the network configuration.".into(),
        module => format!("By the module {}.", markup(module)),
    }
}

fn shown_command(command: &Value) -> String {
    if text(command, "change") == "send" {
        return format!("{} {}", text(command, "method"), text(command, "url"));
    }
    list(command, "argv").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// A command without the options that say how a package manager is to ask.
fn short_command(command: &Value) -> String {
    let shown = shown_command(command);
    let words = shown.split(' ').filter(|word| !word.starts_with("--option=") && *word != "--assume-yes");
    words.collect::<Vec<_>>().join(" ")
}

/// A public key without most of its middle.
fn short_key(key: &str) -> String {
    let shortened = key.split(' ').map(|word| {
        let count = word.chars().count();
        if count <= 40 {
            return word.to_owned();
        }
        let (start, end): (String, String) = (word.chars().take(12).collect(), word.chars().skip(count - 8).collect());
        format!("{start}…{end}")
    });
    shortened.collect::<Vec<_>>().join(" ")
}
