//! What tests/net runs inside a namespace: raises the links there, asks one source, gives everything back, and prints one
//! line of JSON. The namespace's links are veth, so links of software are raised.
//!
//!     net-ask openstack|ec2|get DEADLINE [cmdline=TEXT] [url=URL]... [record=PATH] [die] [keep] [disks] [verbose]
//!     net-ask rename MAC=NAME...

use prepivot::deadline::Deadline;
use prepivot::document::{Map, Value, json};
use prepivot::error::{Error, Result};
use prepivot::link::http::{Client, Redirects, Settings as Http};
use prepivot::link::{Session, Settings, cmdline_net::Plan, rename};
use prepivot::machine::Cmdline;
use prepivot::source::openstack;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of each file that was fetched, by path; the problems; the service.
type Answer = (Vec<(String, Vec<u8>)>, Vec<String>, String);

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
    let result = match args.first().map(String::as_str) {
        Some("rename") => rename_all(args.get(1..).unwrap_or_default()),
        Some(source) => ask(source, args.get(1..).unwrap_or_default(), &mut out),
        None => Err(Error::new("usage: net-ask SOURCE DEADLINE …")),
    };
    out.insert("ok", result.is_ok());
    out.insert("error", result.err().map_or(Value::Null, |e| Value::from(e.to_string())));
    out.insert("total", Value::Float(started.elapsed().as_secs_f64()));
    println!("{}", json::to_string(&Value::Map(out)));
}

fn values<'a>(args: &'a [String], key: &str) -> Vec<&'a str> {
    args.iter().filter_map(|a| a.split_once('=')).filter(|(k, _)| *k == key).map(|(_, v)| v).collect()
}

fn ask(source: &str, args: &[String], out: &mut Map) -> Result<()> {
    let seconds = args.first().and_then(|a| a.parse().ok()).ok_or_else(|| Error::new("the deadline is no number"))?;
    let deadline = Deadline::after(Duration::from_secs_f64(seconds));
    let has = |word: &str| args.iter().any(|a| a == word);
    let settings = Settings {
        record: values(args, "record").first().map(PathBuf::from),
        sys: "/sys".into(),
        plan: Plan::parse(&Cmdline::new(values(args, "cmdline").first().copied().unwrap_or_default())),
        software_links: true,
        raise: !has("present"),
    };
    let urls: Vec<String> = values(args, "url").into_iter().map(str::to_owned).collect();
    let redirects = if source == "get" { Redirects::Any } else { Redirects::SameOrigin };
    let http = Http { redirects, ca_files: values(args, "ca").into_iter().map(PathBuf::from).collect() };
    let started = Instant::now();
    let mut session = Session::open(&settings, deadline)?;
    let answer: Result<Answer> = match source {
        "openstack" => session.ask(&http, &|way| openstack::urls(way, &urls), &|client, base| {
            let fetched = openstack::fetch(client, base, has("disks"))?;
            Ok((fetched.files, fetched.problems, place(client, &fetched.base)))
        }),
        "get" => {
            session.ask(&http, &|way| urls.iter().filter(|u| way.leads_to(u)).cloned().collect(), &|client, url| {
                match client.get(url)? {
                    Some(body) => Ok((vec![("body".into(), body)], Vec::new(), place(client, url))),
                    None => Err(Error::new("404")),
                }
            })
        }
        other => Err(Error::new(format!("no source {other}"))),
    };
    out.insert("seconds", Value::Float(started.elapsed().as_secs_f64()));
    out.insert("requests", session.requests());
    let leases: Vec<Value> = session.leases().map(|l| Value::from(format!("{l:?}"))).collect();
    out.insert("leases", leases);
    if has("die") {
        // As if killed: nothing is given back, the record stays.
        std::process::exit(9);
    }
    let restored = if has("keep") {
        session.keep();
        Ok(())
    } else {
        session.restore()
    };
    let (files, problems, base) = answer?;
    let files: Map = files
        .into_iter()
        .map(|(p, b)| (p, String::from_utf8_lossy(&b).chars().take(4096).collect::<String>()))
        .collect();
    out.insert("files", files);
    out.insert("problems", problems.into_iter().map(Value::from).collect::<Vec<_>>());
    out.insert("base", base);
    restored
}

fn place(client: &Client, base: &str) -> String {
    format!("{} by {}", base, client.way().name())
}

fn rename_all(args: &[String]) -> Result<()> {
    let wanted: Option<Vec<([u8; 6], String)>> = args
        .iter()
        .map(|a| {
            let (mac, name) = a.split_once('=')?;
            let octets: Option<Vec<u8>> = mac.split(':').map(|o| u8::from_str_radix(o, 16).ok()).collect();
            Some((octets?.try_into().ok()?, name.to_owned()))
        })
        .collect();
    rename::rename(&wanted.ok_or_else(|| Error::new("expected MAC=NAME"))?)
}
