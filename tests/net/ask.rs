//! The program that tests/net runs inside a namespace: raises the links there, asks the sources, undoes all changes,
//! and prints one line of JSON. The namespace's links are veth, so virtual links are raised.
//!
//!     net-ask NAME[,NAME]… DEADLINE machine=DIR [config=JSON] [record=PATH] [present] [die] [keep] [verbose]
//!     net-ask rename NAME=NAME…
//!
//! The folder `machine` represents the machine (proc/cmdline, sys/class/dmi/id, …) and its root.

use prepivot::base::deadline::Deadline;
use prepivot::base::error::{Error, Result};
use prepivot::document::{Map, Value, json};
use prepivot::instance::cache;
use prepivot::link::rename::{self, Rename};
use prepivot::link::{Session, Settings, cmdline_net::LinkPlan};
use prepivot::machine::Machine;
use prepivot::root::{Root, Use};
use prepivot::source::{self, Search, service};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.target().starts_with("prepivot")
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "verbose") && log::set_logger(&Stderr).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let started = Instant::now();
    let mut out = Map::new();
    let result = match args.split_first() {
        Some((verb, rest)) if verb == "rename" => {
            rename_all(&rest.iter().filter(|a| *a != "verbose").cloned().collect::<Vec<_>>())
        }
        Some((sources, rest)) => find(sources, rest, &mut out),
        None => Err(Error::new("usage: net-ask SOURCES DEADLINE machine=DIR …")),
    };
    out.insert("ok", result.is_ok());
    out.insert("error", result.err().map_or(Value::Null, |e| Value::from(e.to_string())));
    out.insert("total", Value::Float(started.elapsed().as_secs_f64()));
    println!("{}", json::to_string(&Value::Map(out)));
}

fn find(sources: &str, args: &[String], out: &mut Map) -> Result<()> {
    let value = |key: &str| args.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let has = |word: &str| args.iter().any(|a| a == word);
    let seconds = args.first().and_then(|a| a.parse().ok()).ok_or_else(|| Error::new("the deadline is no number"))?;
    let folder = Path::new(value("machine").ok_or_else(|| Error::new("machine=DIR is missing"))?);
    let machine = Machine::read(folder);
    let root = Root::open(folder, Use::Tree)?;
    let config = json::parse("config", value("config").unwrap_or("{}").as_bytes())?;
    let settings = Settings {
        record: value("record").map(PathBuf::from),
        sys: "/sys".into(),
        plan: LinkPlan::parse(&machine.cmdline),
        software_links: true,
        raise: !has("present"),
    };
    let wanted: Vec<&str> = sources.split(',').collect();
    let started = Instant::now();
    let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::from_secs_f64(seconds)));
    // As on a machine without a mark: what a service refuses is final.
    search.marked = false;
    let jobs = wanted.iter().filter_map(|name| source::named(name)?.service?(&mut search)).collect();
    let mut session = Session::open(&settings, search.deadline)?;
    let found = service::ask(&mut search, jobs, &mut session, folder).or_else(|| search.take_otherwise());
    out.insert("seconds", Value::Float(started.elapsed().as_secs_f64()));
    out.insert("requests", session.findings().requests());
    out.insert("leases", session.leases().map(|l| Value::from(format!("{l:?}"))).collect::<Vec<_>>());
    let problems = search.problems().join("; ");
    if let Some(found) = &found {
        out.insert("place", found.place.as_str());
        let mut instance = Vec::new();
        cache::write(&found.instance, &mut instance).map_err(|e| Error::new(e.to_string()))?;
        out.insert("instance", json::parse("instance", &instance)?);
    }
    if has("die") {
        // As if killed: nothing is undone, the record stays.
        std::process::exit(9);
    }
    if has("keep") {
        session.keep();
    } else {
        session.restore()?;
    }
    found.map(drop).ok_or_else(|| Error::new(problems))
}

fn rename_all(args: &[String]) -> Result<()> {
    let pairs = args.iter().filter_map(|a| a.split_once('='));
    rename::rename(&pairs.map(|(from, to)| Rename { from: from.into(), to: to.into() }).collect::<Vec<_>>())
}
