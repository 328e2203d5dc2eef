//! `analyze --svg` and `--html`, and `report`: boots as a picture, in the manner of `systemd-analyze plot`.
//!
//! Each stage and each part of one is a bar on the time since the boot's first event. Between the stages the system starts: after
//! the local stage the initramfs ends. The page holds the picture, the times as a table, and the log's requests, waits and problems.
//! It needs no script and no other file.

use super::events::{Event, Kind, Mark};
use crate::base::sort;
use crate::root::Stage;
use quick_xml::escape::escape;
use std::fmt::Write;

/// The most bars of one boot; the rest is left out.
const MAX_BARS: usize = 500;
/// The most boots of one log, the last of it.
const MAX_BOOTS: usize = 4;
/// No stage begins twice in less time, in seconds.
const AGAIN: f64 = 2.0;
/// Sizes in the picture, in pixels.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;
/// Colours that can be told from white and from black, and the word for each kind of mark.
const MARKS: [(Kind, &str, &str); 4] = [
    (Kind::Request, "#8250df", "request"),
    (Kind::Wait, "#9a6700", "wait"),
    (Kind::Warning, "#bc4c00", "warning"),
    (Kind::Error, "#cf222e", "error"),
];
const STAGE: &str = "#57606a";
const PART: &str = "#1a7f37";
const FAILED: &str = "#cf222e";

/// The texts of the picture, which has it also where it is a file of its own.
const INK: &str = "<style>:root{color-scheme:light dark}.boots{fill:#59636e}\
                   @media(prefers-color-scheme:dark){.boots{fill:#9aa4af}}</style>";

/// The page around the picture. Light and dark, as the reader's system is.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:14px/1.5 system-ui,sans-serif;max-width:1060px;margin:1.5em auto;padding:0 1em}\
svg{width:100%;height:auto}\
table{border-collapse:collapse;margin:.5em 0}\
td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top;border-bottom:1px solid #8884}\
td.n{text-align:right;font-variant-numeric:tabular-nums}\
code{font-size:12px;overflow-wrap:anywhere}\
summary:focus-visible{outline:3px solid;outline-offset:2px}\
.mark{display:inline-block;width:.8em;height:.8em}\
@media print{details::details-content{content-visibility:visible;block-size:auto}.mark{print-color-adjust:exact}}";

/// One boot of a log.
pub struct Boot {
    /// Where it comes from: the log, and the boot's number in it.
    title: String,
    /// When its first event was, in seconds since 1970.
    begin: f64,
    bars: Vec<Bar>,
    marks: Vec<Mark>,
}

struct Bar {
    name: String,
    description: String,
    /// Seconds since the boot's first event. The end is None if the log has none.
    begin: f64,
    end: Option<f64>,
    failed: bool,
}

impl Bar {
    fn is_stage(&self) -> bool {
        !self.name.contains('/')
    }

    fn took(&self) -> Option<f64> {
        self.end.map(|end| end - self.begin)
    }

    fn label(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        let name = name.strip_prefix("config-").unwrap_or(name);
        match self.took() {
            Some(took) => format!("{name} ({})", seconds(took)),
            None => format!("{name} (no end in the log)"),
        }
    }
}

impl Boot {
    /// The last boots of a log named `title`, each from the local stage to the next boot's.
    pub fn of_log(title: &str, events: &[Event], marks: &[Mark]) -> Vec<Boot> {
        let mut boots: Vec<Boot> = Vec::new();
        for event in events {
            let is_again = boots.last().is_some_and(|boot| boot.has_begun(event));
            let begins = event.result.is_none() && event.name == Stage::Local.event().0;
            if boots.is_empty() || (begins && !is_again) {
                let title = format!("{title}, boot {}", boots.len() + 1);
                boots.push(Boot { title, begin: event.time, bars: Vec::new(), marks: Vec::new() });
            }
            boots.last_mut().into_iter().for_each(|boot| boot.add(event));
        }
        for mark in marks {
            let boot = boots.iter_mut().rev().find(|boot| mark.time >= boot.begin);
            boot.into_iter().for_each(|boot| boot.marks.push(mark.clone()));
        }
        boots.split_off(boots.len().saturating_sub(MAX_BOOTS))
    }

    /// Whether an event is the beginning of a stage that has begun a moment before: a stage is named by its event and by the line
    /// that begins it in cloud-init's words, in any order.
    fn has_begun(&self, event: &Event) -> bool {
        let stage = self.bars.iter().rev().find(|bar| bar.is_stage());
        let is_again = |bar: &Bar| bar.name == event.name && event.time - self.begin - bar.begin < AGAIN;
        event.result.is_none() && stage.is_some_and(is_again)
    }

    fn add(&mut self, event: &Event) {
        let time = (event.time - self.begin).max(0.0);
        match &event.result {
            None if self.has_begun(event) => {}
            None if self.bars.len() < MAX_BARS => {
                let (name, description) = (event.name.clone(), event.description.clone());
                self.bars.push(Bar { name, description, begin: time, end: None, failed: false });
            }
            None => {}
            Some(result) => {
                let open = self.bars.iter_mut().rev().find(|bar| bar.name == event.name && bar.end.is_none());
                open.into_iter().for_each(|bar| (bar.end, bar.failed) = (Some(time), result != "SUCCESS"));
            }
        }
    }

    /// When the last event was, in seconds since the first.
    fn length(&self) -> f64 {
        self.bars.iter().map(|bar| bar.end.unwrap_or(bar.begin)).fold(0.0, f64::max)
    }
}

/// The picture of some boots, all to one scale.
pub fn svg(boots: &[Boot]) -> String {
    let length = boots.iter().map(Boot::length).fold(0.001, f64::max);
    let whole: f64 = boots.iter().map(height).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\" class=\"boots\"><title>Where the time of the boots went</title>{INK}\n"
    );
    let mut top = 0.0;
    for boot in boots {
        draw(&mut out, boot, top, length);
        top += height(boot);
    }
    out + "</svg>\n"
}

/// The height of a boot's part of the picture: a title, the scale, the marks, and the bars.
fn height(boot: &Boot) -> f64 {
    (boot.bars.len() as f64 + 4.0) * ROW
}

fn draw(out: &mut String, boot: &Boot, top: f64, length: f64) {
    let across = |time: f64| MARGIN + time / length * (WIDTH - 2.0 * MARGIN);
    let base = top + 2.0 * ROW;
    let bottom = top + height(boot) - ROW;
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
        top + ROW - 4.0,
        escape(&boot.title)
    );
    let step = step(length);
    let mut mark = 0.0;
    while mark <= length {
        let x = across(mark);
        let anchor = if x > WIDTH * 0.95 { "end" } else { "start" };
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {base:.0}V{bottom:.0}\" stroke=\"#8888\" stroke-width=\"0.5\"/><text x=\"{x:.1}\" y=\"{:.0}\" \
             font-size=\"10\" text-anchor=\"{anchor}\">{}</text>",
            base - 3.0,
            seconds(mark)
        );
        mark += step;
    }
    for (begin, end, what) in gaps(boot) {
        let y = base + ROW / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {y:.0}H{:.1}\" stroke=\"#808080\" stroke-dasharray=\"3 3\"><title>{what}: {}</title></path>",
            across(begin),
            across(end),
            seconds(end - begin)
        );
    }
    for mark in &boot.marks {
        let (_, color, word) = MARKS.iter().find(|(kind, ..)| *kind == mark.kind).unwrap_or(&MARKS[0]);
        let x = across((mark.time - boot.begin).clamp(0.0, length));
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {base:.0}v{ROW}\" stroke=\"{color}\" stroke-width=\"2\"><title>{word} at {}: {}</title></path>",
            seconds(mark.time - boot.begin),
            escape(&mark.text)
        );
    }
    for (n, bar) in boot.bars.iter().enumerate() {
        let y = base + (n as f64 + 1.0) * ROW;
        let end = bar.end.unwrap_or(bar.begin);
        let (x, width) = (across(bar.begin), (across(end) - across(bar.begin)).max(1.5));
        let color = match bar.is_stage() {
            _ if bar.failed => FAILED,
            true => STAGE,
            false => PART,
        };
        // A label that would leave the picture stands before its bar, or on it.
        let (label, anchor, ink) = match (x + width > WIDTH * 0.75, x > WIDTH * 0.25) {
            (false, _) => (x + width + 4.0, "start", ""),
            (true, true) => (x - 4.0, "end", ""),
            (true, false) => (x + 4.0, "start", " fill=\"#ffffff\""),
        };
        let _ = writeln!(
            out,
            "<g><title>{}: {}</title><rect x=\"{x:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"{color}\"/>\
             <text x=\"{label:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\"{ink}>{}</text></g>",
            escape(&bar.name),
            escape(&bar.description),
            y + 3.0,
            ROW - 5.0,
            y + ROW - 5.0,
            escape(bar.label())
        );
    }
}

/// The times between the stages, in seconds since the boot's first event, and what the machine does in them.
fn gaps(boot: &Boot) -> Vec<(f64, f64, &'static str)> {
    let stages: Vec<&Bar> = boot.bars.iter().filter(|bar| bar.is_stage() && bar.end.is_some()).collect();
    let gap = |pair: &[&Bar]| match pair {
        [before, after] => {
            let what = if before.name == Stage::Local.event().0 {
                "the pivot, the system starts"
            } else {
                "the system starts"
            };
            before.end.filter(|end| *end < after.begin).map(|end| (end, after.begin, what))
        }
        _ => None,
    };
    stages.windows(2).filter_map(gap).collect()
}

/// The page with the picture of some boots.
pub fn html(boots: &[Boot]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Boots</title><meta name=\"viewport\" \
         content=\"width=device-width\"><style>{STYLE}</style></head><body>\n<h1>Where the time of the boots went</h1>\n<p>Bars are stages and \
         what they did, dashes the system's own start between them; marks above them are"
    );
    for (n, (_, color, word)) in MARKS.iter().enumerate() {
        let _ = write!(
            out,
            "{} <span class=\"mark\" style=\"background:{color}\"></span> {word}s",
            if n == 0 { "" } else { "," }
        );
    }
    out += ".</p>\n";
    out += &svg(boots);
    if let [before, after] = boots {
        compare(&mut out, before, after);
    }
    for boot in boots {
        tables(&mut out, boot);
    }
    out + "</body></html>\n"
}

/// What two boots took, beside each other: what took longest first.
fn compare(out: &mut String, before: &Boot, after: &Boot) {
    let took = |boot: &Boot, name: &str| boot.bars.iter().find(|bar| bar.name == name).and_then(Bar::took);
    let mut names: Vec<&str> = before.bars.iter().chain(&after.bars).map(|bar| bar.name.as_str()).collect();
    sort::by(&mut names, |a, b| a.cmp(b));
    names.dedup();
    let most = |name: &str| took(before, name).into_iter().chain(took(after, name)).fold(0.0, f64::max);
    sort::by(&mut names, |a, b| most(b).total_cmp(&most(a)));
    *out += "<h2>Compared</h2>\n<table><tr><th>event</th>";
    let _ = writeln!(out, "<th>{}</th><th>{}</th></tr>", escape(&before.title), escape(&after.title));
    for name in names {
        let cell = |boot| took(boot, name).map_or_else(|| "–".to_owned(), seconds);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(name),
            cell(before),
            cell(after)
        );
    }
    *out += "</table>\n";
}

fn tables(out: &mut String, boot: &Boot) {
    let _ = writeln!(
        out,
        "<details open><summary><b>{}</b>: {} in all</summary>\n<table><tr><th>at</th><th>took</th><th>event</th><th></th></tr>",
        escape(&boot.title),
        seconds(boot.length())
    );
    for bar in &boot.bars {
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}{}</td></tr>",
            seconds(bar.begin),
            bar.took().map_or_else(|| "no end".to_owned(), seconds),
            escape(&bar.name),
            if bar.failed { "failed: " } else { "" },
            escape(&bar.description)
        );
    }
    *out += "</table>\n";
    if !boot.marks.is_empty() {
        *out += "<table><tr><th>at</th><th></th><th></th></tr>\n";
        for mark in &boot.marks {
            let word = MARKS.iter().find(|(kind, ..)| *kind == mark.kind).map_or("", |(.., word)| word);
            let _ = writeln!(
                out,
                "<tr><td class=\"n\">{}</td><td>{word}</td><td><code>{}</code></td></tr>",
                seconds(mark.time - boot.begin),
                escape(&mark.text)
            );
        }
        *out += "</table>\n";
    }
    *out += "</details>\n";
}

/// The distance of the scale's marks: 1, 2 or 5 of a power of ten, and at most ten of them.
fn step(length: f64) -> f64 {
    let power = 10f64.powf((length / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| length / step <= 10.0).unwrap_or(length)
}

fn seconds(time: f64) -> String {
    if time.abs() < 0.9995 { format!("{:.0} ms", time * 1000.0) } else { format!("{time:.2} s") }
}
