//! The network as a drawing (SVG): devices in columns, each to the right of those that it is made of.

use super::formats::markup;
use crate::document::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// The most devices that are drawn.
const MAX_DRAWN: usize = 200;
/// Of a box: its width, the height of a line, and the distances between boxes.
const WIDTH: usize = 270;
const LINE: usize = 17;
const GAP: (usize, usize) = (60, 18);
/// The most lines of a box, and characters of a line.
const MAX_LINES: usize = 14;
const MAX_CHARS: usize = 32;

/// A device's box.
struct Shape<'v> {
    name: &'v str,
    below: Vec<&'v str>,
    lines: Vec<String>,
    column: usize,
    y: usize,
}

/// The drawing of a network's `interfaces`.
pub fn svg(interfaces: &[Value]) -> String {
    let mut shapes: Vec<Shape> = interfaces.iter().take(MAX_DRAWN).map(shape).collect();
    arrange(&mut shapes);
    let x = |column: usize| 10 + column * (WIDTH + GAP.0);
    let right = shapes.iter().map(|shape| x(shape.column) + WIDTH).max().unwrap_or_default() + 10;
    let bottom = shapes.iter().map(|shape| shape.y + height(shape)).max().unwrap_or_default() + 10;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"drawing\" viewBox=\"0 0 {right} {bottom}\" \
         width=\"{right}\" height=\"{bottom}\"><title id=\"drawing\">The network: {} devices</title>\n",
        interfaces.len()
    );
    let by_name: HashMap<&str, &Shape> = shapes.iter().map(|shape| (shape.name, shape)).collect();
    for shape in &shapes {
        for below in shape.below.iter().filter_map(|name| by_name.get(name)) {
            let (from, to) = ((x(below.column) + WIDTH, below.y + LINE), (x(shape.column), shape.y + LINE));
            let middle = (from.0 + to.0) / 2;
            let _ = writeln!(
                out,
                "<path class=\"line\" d=\"M{} {} C{middle} {} {middle} {} {} {}\"/>",
                from.0, from.1, from.1, to.1, to.0, to.1
            );
        }
    }
    for shape in &shapes {
        let (left, height) = (x(shape.column), height(shape));
        let _ = writeln!(
            out,
            "<rect class=\"box\" x=\"{left}\" y=\"{}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>",
            shape.y
        );
        for (at, line) in shape.lines.iter().enumerate() {
            let class = if at == 0 { " class=\"name\"" } else { "" };
            let y = shape.y + LINE * (at + 1) + 1;
            let _ = writeln!(out, "<text{class} x=\"{}\" y=\"{y}\">{}</text>", left + 10, markup(line));
        }
    }
    if interfaces.len() > MAX_DRAWN {
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">… and {} more</text>", bottom - 2, interfaces.len() - MAX_DRAWN);
    }
    out + "</svg>\n"
}

fn height(shape: &Shape) -> usize {
    shape.lines.len() * LINE + 12
}

fn shape(interface: &Value) -> Shape<'_> {
    let text = |key: &str| interface.get(key).and_then(Value::as_str).unwrap_or_default();
    let list = |key: &str| interface.get(key).and_then(Value::as_list).unwrap_or_default();
    let mut lines = vec![text("name").to_owned(), format!("{} {}", text("type"), text("detail")).trim_end().to_owned()];
    if !text("mac").is_empty() {
        lines.push(text("mac").to_owned());
    }
    if let Some(mtu) = interface.get("mtu").and_then(Value::as_int) {
        lines.push(format!("MTU {mtu}"));
    }
    for (key, before) in [("addresses", ""), ("routes", "→ "), ("dns", "DNS ")] {
        lines.extend(list(key).iter().filter_map(Value::as_str).map(|value| format!("{before}{value}")));
    }
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES + 1;
        lines.truncate(MAX_LINES - 1);
        lines.push(format!("… {more} more"));
    }
    for line in &mut lines {
        if line.chars().count() > MAX_CHARS {
            *line = line.chars().take(MAX_CHARS - 1).chain(['…']).collect();
        }
    }
    Shape {
        name: text("name"),
        below: list("below").iter().filter_map(Value::as_str).collect(),
        lines,
        column: 0,
        y: 0,
    }
}

/// Puts each box into the column after those that it is made of, and the boxes of a column below each other.
fn arrange(shapes: &mut [Shape]) {
    // As often as a chain can be long; devices that are made of each other stay where they are then.
    for _ in 0..8 {
        let columns: HashMap<String, usize> = shapes.iter().map(|s| (s.name.to_owned(), s.column)).collect();
        for shape in shapes.iter_mut() {
            let below = shape.below.iter().filter_map(|name| columns.get(*name)).max();
            shape.column = below.map_or(0, |column| (column + 1).min(8));
        }
    }
    let mut next = [10; 9];
    for shape in shapes.iter_mut() {
        if let Some(y) = next.get_mut(shape.column) {
            shape.y = *y;
            *y += height(shape) + GAP.1;
        }
    }
}
