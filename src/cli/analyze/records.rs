//! Groups events into boots, each from the first stage to the next boot's.

use super::events::Event;
use crate::root::Stage;

const EXPLAINED: &str = "The total time elapsed since completing an event is printed after the \"@\" character.\n\
                         The time the event takes is printed after the \"+\" character.\n\n";

/// The output of `show`.
pub fn show(events: &[Event], format: &str) -> String {
    print(events, format, |lines| format!("{EXPLAINED}{}\n", lines.join("\n")))
}

/// The output of `blame`: the slowest first.
pub fn blame(events: &[Event]) -> String {
    print(events, "     %ds (%n)", |mut lines| {
        lines.retain(|line| line.starts_with(' '));
        crate::base::sort::by(&mut lines, |a, b| b.cmp(a));
        format!("{}\n\n", lines.join("\n"))
    })
}

fn print(events: &[Event], format: &str, lines: impl Fn(Vec<String>) -> String) -> String {
    let boots = boots(events, format);
    let number = boots.len();
    let print = |(n, boot): (usize, Vec<String>)| format!("-- Boot Record {:02} --\n{}", n + 1, lines(boot));
    let text: String = boots.into_iter().enumerate().map(print).collect();
    format!("{text}{number} boot records analyzed\n")
}

/// The lines of each boot. An event with nothing inside it is one line; a stage has two.
fn boots(events: &[Event], format: &str) -> Vec<Vec<String>> {
    let mut boots = Vec::new();
    let mut lines = Vec::new();
    let mut first = None;
    let mut total = 0.0;
    let mut open: Vec<&Event> = Vec::new();
    let end = |lines: &mut Vec<String>, total: f64| lines.push(format!("Total Time: {total:.5} seconds\n"));
    for (at, event) in events.iter().enumerate() {
        if event.result.is_some() {
            if let Some(begun) = open.pop_if(|begun| begun.name == event.name) {
                total += event.time - begun.time;
                lines.push(formatted("Finished stage: (%n) %d seconds", event, begun, first) + "\n");
            }
            continue;
        }
        if !lines.is_empty() && event.name == Stage::Local.event().0 {
            end(&mut lines, total);
            boots.push(std::mem::take(&mut lines));
            (first, total) = (None, 0.0);
        }
        first = first.or(Some(event.time));
        match events.get(at + 1).filter(|next| next.name == event.name) {
            Some(next) if next.result.is_some() => lines.push(formatted(format, next, event, first)),
            Some(_) => {}
            None => {
                lines.push(format!("Starting stage: {}", event.name));
                open.push(event);
            }
        }
    }
    end(&mut lines, total);
    boots.push(lines);
    boots
}

/// A line in cloud-init's format notation. `begun` is the beginning of the event that `event` ends.
fn formatted(format: &str, event: &Event, begun: &Event, first: Option<f64>) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, sign) = rest.split_at(at);
        out += before;
        let value = match sign.chars().nth(1) {
            Some('d') => seconds(event.time - begun.time),
            Some('E') => seconds(begun.time - first.unwrap_or(begun.time)),
            Some('t') => seconds(event.time),
            Some('D') => event.description.clone(),
            Some('e') => event.kind().to_owned(),
            Some('I') => format!("|{}`->", " ".repeat(event.name.matches('/').count().saturating_sub(1))),
            Some('n') => event.name.clone(),
            Some('o') => "cloudinit".to_owned(),
            Some('r') => event.result.clone().unwrap_or_default(),
            Some('l' | 'T') => String::new(),
            _ => {
                out.push('%');
                rest = sign.get(1..).unwrap_or_default();
                continue;
            }
        };
        out += &value;
        rest = sign.get(2..).unwrap_or_default();
    }
    out + rest
}

fn seconds(time: f64) -> String {
    format!("{time:08.5}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: f64, name: &str, result: Option<&str>) -> Event {
        Event { name: name.into(), description: format!("doing {name}"), time, result: result.map(str::to_owned) }
    }

    #[test]
    fn two_boots() {
        let mut events = Vec::new();
        for begin in [100.0, 200.0] {
            events.extend([
                event(begin, "init-local", None),
                event(begin + 0.5, "init-local/a", None),
                event(begin + 0.75, "init-local/a", Some("SUCCESS")),
                event(begin + 1.0, "init-local/b", None),
                event(begin + 3.5, "init-local/b", Some("FAIL")),
                event(begin + 4.0, "init-local", Some("SUCCESS")),
            ]);
        }
        let boot = "The total time elapsed since completing an event is printed after the \"@\" character.\n\
            The time the event takes is printed after the \"+\" character.\n\n\
            Starting stage: init-local\n|`->doing init-local/a @00.50000s +00.25000s\n|`->doing init-local/b @01.00000s +02.50000s\n\
            Finished stage: (init-local) 04.00000 seconds\n\nTotal Time: 4.00000 seconds\n\n";
        let expected = format!("-- Boot Record 01 --\n{boot}-- Boot Record 02 --\n{boot}2 boot records analyzed\n");
        assert_eq!(show(&events, "%I%D @%Es +%ds"), expected);
        let blamed = "     02.50000s (init-local/b)\n     00.25000s (init-local/a)\n\n";
        let expected = format!("-- Boot Record 01 --\n{blamed}-- Boot Record 02 --\n{blamed}2 boot records analyzed\n");
        assert_eq!(blame(&events), expected);
        let line = formatted("%%n %e %r %t %o%l%x é%", &events[4], &events[3], None);
        assert_eq!(line, "%init-local/b finish FAIL 103.50000 cloudinit%x é%");
    }

    #[test]
    fn events_that_do_not_match() {
        for events in [
            vec![],
            vec![event(1.0, "a", Some("SUCCESS"))],
            vec![event(1.0, "a", None)],
            vec![event(1.0, "a", None), event(2.0, "b", Some("SUCCESS")), event(3.0, "a", Some("x"))],
            vec![event(1.0, "a", None), event(1.0, "a", None)],
        ] {
            assert!(show(&events, "%d").ends_with("1 boot records analyzed\n"));
            assert!(blame(&events).ends_with("1 boot records analyzed\n"));
        }
    }
}
