//! The verdicts of all sources, and what they come to.

use super::asked::{self, Mode, NONE, Policy};
use super::facts::Facts;
use super::marks::judge;
use super::table::{self, SOURCES};
use super::{Finding, Verdict};
use crate::document::{Map, Value, json};

/// What the verdicts come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Sources were found, or named.
    Found,
    /// Nothing was found; cloud-init does not run.
    NotFound,
    /// cloud-init runs, and tries every source of its list.
    Enabled,
    /// The policy switches cloud-init off.
    DisabledByPolicy,
    /// The image's owner switches cloud-init off: marker, kernel command line, environment.
    Disabled,
}

impl Outcome {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Found => "found",
            Outcome::NotFound => "not found",
            Outcome::Enabled => "enabled",
            Outcome::DisabledByPolicy | Outcome::Disabled => "disabled",
        }
    }

    /// ds-identify's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Found | Outcome::Enabled => 0,
            Outcome::NotFound | Outcome::DisabledByPolicy => 1,
            Outcome::Disabled => 2,
        }
    }
}

/// What is said of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its name, as the list has it.
    pub source: String,
    /// Whether it is among those that count: of the image's list, or any where there is none.
    pub listed: bool,
    pub finding: Finding,
}

/// ds-identify's answer.
#[derive(Debug, Clone)]
pub struct Report {
    /// Every source: those of the list in its order, then the others.
    pub lines: Vec<Line>,
    pub outcome: Outcome,
    /// Why it is that, in words.
    pub why: String,
    /// The sources that are tried, in their order, as ds-identify writes them.
    pub list: Vec<String>,
    /// What ds-identify writes to /run/cloud-init/cloud.cfg; null where it writes nothing that counts.
    pub run_config: Value,
}

/// Looks for every source, and decides.
pub fn identify(facts: &Facts) -> Report {
    let lines = lines(facts);
    let mut report =
        Report { lines, outcome: Outcome::Found, why: String::new(), list: Vec::new(), run_config: Value::Null };
    report.decide(facts);
    report
}

/// The list where the image has none, and the lines of the table that it leaves out where it has one.
fn lines(facts: &Facts) -> Vec<Line> {
    let none = |name: &str| Finding { verdict: Verdict::NotFound, why: format!("there is no source called {name}") };
    let listed = facts.asked.list.clone().unwrap_or_else(|| SOURCES.iter().map(|s| s.name.to_owned()).collect());
    let known = listed.iter().filter(|name| *name != NONE).map(|name| {
        let finding = table::named(name).map_or_else(|| none(name), |source| judge(source.marks, facts));
        Line { source: name.clone(), listed: true, finding }
    });
    let others = SOURCES.iter().filter(|s| !listed.iter().any(|name| name.eq_ignore_ascii_case(s.name)));
    let others = others.map(|s| Line { source: s.name.into(), listed: false, finding: judge(s.marks, facts) });
    known.chain(others).collect()
}

impl Report {
    fn decide(&mut self, facts: &Facts) {
        let asked = &facts.asked;
        let policy = asked.policy;
        let place = asked.policy_place();
        if let Some(why) = asked::disabled(facts.root, facts.cmdline(), facts.variable("KERNEL_CMDLINE")) {
            return self.set(Outcome::Disabled, why);
        }
        match policy.mode {
            Mode::Disabled => return self.set(Outcome::DisabledByPolicy, format!("{place} says disabled")),
            Mode::Enabled => return self.set(Outcome::Enabled, format!("{place} says enabled: nothing is looked for")),
            Mode::Search | Mode::Report => {}
        }
        if let Some((name, place)) = &asked.forced {
            return self.take(facts, vec![name.clone()], format!("{place} names {name}"));
        }
        if asked.manual_clean {
            return self.set(Outcome::Enabled, "the instance of an earlier boot is kept (manual_cache_clean)".into());
        }
        if let Some(list) = asked.single() {
            self.set(Outcome::Found, format!("datasource_list has only {}", list.join(" and ")));
            return self.write(facts, list.to_vec());
        }
        let found = self.found(policy);
        if !found.is_empty() {
            let why = self.reasons(&found);
            return self.take(facts, found, why);
        }
        let maybe = self.with(Verdict::Maybe);
        if policy.maybe && !maybe.is_empty() {
            let why = format!("nothing is certain, and the policy takes what may be: {}", self.reasons(&maybe));
            return self.take(facts, maybe, why);
        }
        let runs = policy.mode == Mode::Report || policy.enabled_without;
        let why = match self.with(Verdict::Maybe).as_slice() {
            [] => "no source of the list has a mark on this machine".to_owned(),
            maybe => format!("nothing is certain, and the policy leaves out what only may be: {}", self.reasons(maybe)),
        };
        self.set(if runs { Outcome::Enabled } else { Outcome::NotFound }, why);
        self.run_config = reported(Map::from_iter([("datasource_list", Value::List(Vec::new()))]));
    }

    /// The listed sources that count as found.
    pub(super) fn found(&self, policy: Policy) -> Vec<String> {
        let mut found = self.with(Verdict::Found);
        if policy.first_only {
            found.truncate(1);
        }
        found
    }

    /// The listed sources with a verdict.
    fn with(&self, verdict: Verdict) -> Vec<String> {
        let lines = self.lines.iter().filter(|l| l.listed && l.finding.verdict == verdict);
        lines.map(|l| l.source.clone()).collect()
    }

    fn reasons(&self, names: &[String]) -> String {
        let lines = self.lines.iter().filter(|l| names.contains(&l.source));
        lines.map(|l| format!("{}: {}", l.source, l.finding.why)).collect::<Vec<_>>().join("; ")
    }

    fn set(&mut self, outcome: Outcome, why: String) {
        (self.outcome, self.why) = (outcome, why);
    }

    /// These sources, and None at the end.
    fn take(&mut self, facts: &Facts, mut list: Vec<String>, why: String) {
        if !list.iter().any(|name| name == NONE) {
            list.push(NONE.into());
        }
        self.set(Outcome::Found, why);
        self.write(facts, list);
    }

    fn write(&mut self, facts: &Facts, list: Vec<String>) {
        let names: Vec<Value> = list.iter().map(|name| Value::from(name.as_str())).collect();
        let mut config = Map::from_iter([("datasource_list", Value::List(names))]);
        // What only may be Ec2 is Ec2 to cloud-init only with the setting that says so.
        let ec2 = self.lines.iter().find(|l| l.source == "Ec2" && list.contains(&l.source));
        if let Some(strict_id) = &facts.asked.loose_id
            && ec2.is_some_and(|l| l.finding.verdict == Verdict::Maybe)
        {
            let ec2 = Map::from_iter([("strict_id", strict_id.as_str())]);
            config.insert("datasource", Map::from_iter([("Ec2", ec2)]));
        }
        self.list = list;
        let report = facts.asked.policy.mode == Mode::Report;
        self.run_config = if report { reported(config) } else { Value::Map(config) };
    }

    /// For people: a line for each source, then the outcome.
    pub fn to_text(&self) -> String {
        let line = |l: &Line| {
            let aside = if l.listed { "" } else { " (not in datasource_list)" };
            format!("{:<13} {:<10} {}{aside}\n", l.source, l.finding.verdict.name(), l.finding.why)
        };
        let mut out: String = self.lines.iter().map(line).collect();
        out += &format!("datasource_list: [{}]\n{}: {}\n", self.list.join(", "), self.outcome.name(), self.why);
        out
    }

    /// For programs: one JSON object on one line.
    pub fn to_json(&self, facts: &Facts) -> String {
        let verdict = |l: &Line| {
            let mut map = Map::from_iter([("source", l.source.as_str()), ("verdict", l.finding.verdict.name())]);
            map.insert("why", l.finding.why.as_str());
            map.insert("listed", l.listed);
            Value::Map(map)
        };
        let service =
            |s: super::Service| Value::Map(Map::from_iter([("source", s.name), ("certainty", s.certainty.name())]));
        let mut map = Map::new();
        map.insert("result", self.outcome.name());
        map.insert("exit_code", i64::from(self.outcome.exit_code()));
        map.insert("why", self.why.as_str());
        map.insert("datasource_list", self.list.iter().map(|n| Value::from(n.as_str())).collect::<Vec<_>>());
        map.insert("run_cloud_cfg", self.run_config.clone());
        map.insert("policy", facts.asked.policy.to_string());
        map.insert("virtualization", facts.platform.virt.as_str());
        map.insert("verdicts", self.lines.iter().map(verdict).collect::<Vec<_>>());
        map.insert("network", self.services(facts).into_iter().map(service).collect::<Vec<_>>());
        json::to_string(&Value::Map(map)) + "\n"
    }
}

/// A result that cloud-init does not act on.
fn reported(config: Map) -> Value {
    Value::Map(Map::from_iter([("di_report", config)]))
}
