//! The verdicts on all sources, and the outcome of detection.

use super::facts::Facts;
use super::mark::{Candidate, judge};
use super::policy::{self, Mode, NONE, Policy};
use super::{Finding, Verdict};
use crate::document::{Map, Value};

/// The outcome of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Sources were found or named.
    Found,
    /// Nothing was found; cloud-init does not run.
    NotFound,
    /// cloud-init runs, and tries every source of its list.
    Enabled,
    /// The policy disables cloud-init.
    DisabledByPolicy,
    /// The image's owner disables cloud-init: by marker, kernel command line or environment.
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

/// The verdict on one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidacy {
    /// Its name, as in the list.
    pub source: String,
    /// Whether it may be used: it is in the image's list, or there is no list.
    pub listed: bool,
    pub finding: Finding,
}

/// The result of detection.
#[derive(Debug, Clone)]
pub struct Report {
    /// Every source: those in the list in its order, then the others.
    pub lines: Vec<Candidacy>,
    pub outcome: Outcome,
    /// The reason for the verdict.
    pub why: String,
    /// The sources to try, in order, as ds-identify writes them.
    pub list: Vec<String>,
    /// The content that ds-identify writes to /run/cloud-init/cloud.cfg; null if nothing of it is used.
    pub run_config: Value,
}

/// Checks every candidate and decides. Their order is used if the image has no list.
pub fn identify(facts: &Facts, candidates: &[Candidate]) -> Report {
    let lines = lines(facts, candidates);
    let mut report =
        Report { lines, outcome: Outcome::Found, why: String::new(), list: Vec::new(), run_config: Value::Null };
    report.decide(facts, candidates);
    report
}

/// The verdicts on the sources in the image's list, or on all candidates without a list, then on the
/// remaining candidates.
fn lines(facts: &Facts, candidates: &[Candidate]) -> Vec<Candidacy> {
    let none = |name: &str| Finding { verdict: Verdict::NotFound, why: format!("there is no source called {name}") };
    let all = || candidates.iter().map(|c| c.name.to_owned()).collect();
    let listed = facts.requested.list.clone().unwrap_or_else(all);
    let known = listed.iter().filter(|name| *name != NONE).map(|name| {
        let candidate = candidates.iter().find(|c| c.is_named(name));
        let finding = candidate.map_or_else(|| none(name), |c| judge(c.marks, facts));
        Candidacy { source: name.clone(), listed: true, finding }
    });
    let others = candidates.iter().filter(|c| !listed.iter().any(|name| c.is_named(name)));
    let others = others.map(|c| Candidacy { source: c.name.into(), listed: false, finding: judge(c.marks, facts) });
    known.chain(others).collect()
}

impl Report {
    fn decide(&mut self, facts: &Facts, candidates: &[Candidate]) {
        let requested = &facts.requested;
        let policy = requested.policy;
        let place = requested.policy_place();
        if let Some(why) = policy::disabled(facts.root, facts.cmdline(), facts.variable("KERNEL_CMDLINE")) {
            return self.set(Outcome::Disabled, why);
        }
        match policy.mode {
            Mode::Disabled => return self.set(Outcome::DisabledByPolicy, format!("{place} says disabled")),
            Mode::Enabled => return self.set(Outcome::Enabled, format!("{place} says enabled: nothing is looked for")),
            Mode::Search | Mode::Report => {}
        }
        if let Some((names, place)) = &requested.forced {
            let why = format!("{place} names {}", names.join(" and "));
            return self.take(facts, candidates, names.clone(), why);
        }
        if requested.manual_clean {
            return self.set(Outcome::Enabled, "the instance of an earlier boot is kept (manual_cache_clean)".into());
        }
        if let Some(list) = requested.single() {
            self.set(Outcome::Found, format!("datasource_list has only {}", list.join(" and ")));
            return self.write(facts, candidates, list.to_vec());
        }
        let found = self.found(policy);
        if !found.is_empty() {
            let why = self.reasons(&found);
            return self.take(facts, candidates, found, why);
        }
        let maybe = self.with(Verdict::Maybe);
        if policy.maybe && !maybe.is_empty() {
            let why = format!("nothing is certain, and the policy takes what may be: {}", self.reasons(&maybe));
            return self.take(facts, candidates, maybe, why);
        }
        let runs = policy.mode == Mode::Report || policy.enabled_without;
        let why = match self.with(Verdict::Maybe).as_slice() {
            [] => "no source of the list has a mark on this machine".to_owned(),
            maybe => format!("nothing is certain, and the policy leaves out what only may be: {}", self.reasons(maybe)),
        };
        self.set(if runs { Outcome::Enabled } else { Outcome::NotFound }, why);
        self.run_config = reported(Map::from_iter([("datasource_list", Value::List(Vec::new()))]));
    }

    /// The listed sources that are found, limited by the policy.
    pub fn found(&self, policy: Policy) -> Vec<String> {
        let mut found = self.with(Verdict::Found);
        if policy.first_only {
            found.truncate(1);
        }
        found
    }

    /// The listed sources with this verdict.
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

    /// Sets the list of sources, with None at the end.
    fn take(&mut self, facts: &Facts, candidates: &[Candidate], mut list: Vec<String>, why: String) {
        if !list.iter().any(|name| name == NONE) {
            list.push(NONE.into());
        }
        self.set(Outcome::Found, why);
        self.write(facts, candidates, list);
    }

    fn write(&mut self, facts: &Facts, candidates: &[Candidate], list: Vec<String>) {
        let names: Vec<Value> = list.iter().map(|name| Value::from(name.as_str())).collect();
        let mut config = Map::from_iter([("datasource_list", Value::List(names))]);
        let mut settings = Map::new();
        for candidate in candidates.iter().filter(|c| list.iter().any(|name| name == c.name)) {
            let line = self.lines.iter().find(|l| l.source == candidate.name);
            let setting = line.zip(candidate.setting).and_then(|(line, setting)| setting(facts, &line.finding));
            if let Some((key, value)) = setting {
                settings.insert(candidate.name, Map::from_iter([(key, value)]));
            }
        }
        if !settings.is_empty() {
            config.insert("datasource", settings);
        }
        self.list = list;
        let report = facts.requested.policy.mode == Mode::Report;
        self.run_config = if report { reported(config) } else { Value::Map(config) };
    }

    /// The report for people: a line for each source, then the outcome.
    pub fn to_text(&self) -> String {
        let line = |l: &Candidacy| {
            let aside = if l.listed { "" } else { " (not in datasource_list)" };
            format!("{:<13} {:<10} {}{aside}\n", l.source, l.finding.verdict.name(), l.finding.why)
        };
        let mut out: String = self.lines.iter().map(line).collect();
        out += &format!("datasource_list: [{}]\n{}: {}\n", self.list.join(", "), self.outcome.name(), self.why);
        out
    }

    /// The report for programs: the mapping that `detect --json` prints.
    pub fn to_map(&self, facts: &Facts) -> Map {
        let verdict = |l: &Candidacy| {
            let mut map = Map::from_iter([("source", l.source.as_str()), ("verdict", l.finding.verdict.name())]);
            map.insert("why", l.finding.why.as_str());
            map.insert("listed", l.listed);
            Value::Map(map)
        };
        let mut map = Map::new();
        map.insert("result", self.outcome.name());
        map.insert("exit_code", i64::from(self.outcome.exit_code()));
        map.insert("why", self.why.as_str());
        map.insert("datasource_list", self.list.iter().map(|n| Value::from(n.as_str())).collect::<Vec<_>>());
        map.insert("run_cloud_cfg", self.run_config.clone());
        map.insert("policy", facts.requested.policy.to_string());
        map.insert("virtualization", facts.platform.virt.as_str());
        map.insert("verdicts", self.lines.iter().map(verdict).collect::<Vec<_>>());
        map
    }
}

/// A result that cloud-init does not act on.
fn reported(config: Map) -> Value {
    Value::Map(Map::from_iter([("di_report", config)]))
}
