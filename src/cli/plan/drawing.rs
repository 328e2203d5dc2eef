//! The network as a drawing (SVG): devices in columns, each to the right of those that it is made of.

use super::formats::markup;
use crate::document::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// The most devices that are drawn.
const MAX_DRAWN: usize = 200;
/// Of a box: the width of a character, which texts are stretched to, the least width, the height of a line, and the space beside texts.
const CHAR: usize = 8;
const MIN_WIDTH: usize = 150;
const LINE: usize = 17;
const MARGIN: usize = 10;
/// The distances between boxes.
const GAP: (usize, usize) = (60, 18);
/// The most lines of a box, characters of a line, and columns.
const MAX_LINES: usize = 14;
const MAX_CHARS: usize = 48;
const MAX_COLUMNS: usize = 9;

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
    let columns = columns(&shapes);
    let right = columns.iter().map(|(left, width)| left + width).max().unwrap_or_default() + MARGIN;
    let bottom = shapes.iter().map(|shape| shape.y + height(shape)).max().unwrap_or_default() + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"drawing\" viewBox=\"0 0 {right} {bottom}\" \
         width=\"{right}\" height=\"{bottom}\"><title id=\"drawing\">The network: {} devices</title>\n",
        interfaces.len()
    );
    let column = |shape: &Shape| columns.get(shape.column).copied().unwrap_or_default();
    let by_name: HashMap<&str, &Shape> = shapes.iter().map(|shape| (shape.name, shape)).collect();
    for shape in &shapes {
        for below in shape.below.iter().filter_map(|name| by_name.get(name)) {
            let (left, width) = column(below);
            let (from, to) = ((left + width, below.y + LINE), (column(shape).0, shape.y + LINE));
            let middle = (from.0 + to.0) / 2;
            let _ = writeln!(
                out,
                "<path class=\"line\" d=\"M{} {} C{middle} {} {middle} {} {} {}\"/>",
                from.0, from.1, from.1, to.1, to.0, to.1
            );
        }
    }
    shapes.iter().for_each(|shape| draw(shape, column(shape), &mut out));
    if interfaces.len() > MAX_DRAWN {
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">… and {} more</text>", bottom - 2, interfaces.len() - MAX_DRAWN);
    }
    out + "</svg>\n"
}

/// A device's box with its texts, which have the same width in every font.
fn draw(shape: &Shape, (left, width): (usize, usize), out: &mut String) {
    let _ = writeln!(
        out,
        "<rect class=\"box\" x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"{}\" rx=\"6\"/>",
        shape.y,
        height(shape)
    );
    for (at, line) in shape.lines.iter().enumerate() {
        let class = if at == 0 { " class=\"name\"" } else { "" };
        let (x, y, length) = (left + MARGIN, shape.y + LINE * (at + 1) + 1, line.chars().count() * CHAR);
        let length = format!("textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"");
        let _ = writeln!(out, "<text{class} x=\"{x}\" y=\"{y}\" {length}>{}</text>", markup(line));
    }
}

/// Where each column begins, and its width: that of its longest text.
fn columns(shapes: &[Shape]) -> [(usize, usize); MAX_COLUMNS] {
    let mut columns = [(0, MIN_WIDTH); MAX_COLUMNS];
    for shape in shapes {
        let longest = shape.lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
        if let Some((_, width)) = columns.get_mut(shape.column) {
            *width = (*width).max(longest * CHAR + 2 * MARGIN);
        }
    }
    let mut left = MARGIN;
    for (number, column) in columns.iter_mut().enumerate() {
        if !shapes.iter().any(|shape| shape.column == number) {
            *column = (0, 0);
            continue;
        }
        column.0 = left;
        left += column.1 + GAP.0;
    }
    columns
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
    for _ in 0..MAX_COLUMNS - 1 {
        let columns: HashMap<String, usize> = shapes.iter().map(|s| (s.name.to_owned(), s.column)).collect();
        for shape in shapes.iter_mut() {
            let below = shape.below.iter().filter_map(|name| columns.get(*name)).max();
            shape.column = below.map_or(0, |column| (column + 1).min(MAX_COLUMNS - 1));
        }
    }
    let mut next = [MARGIN; MAX_COLUMNS];
    for shape in shapes.iter_mut() {
        if let Some(y) = next.get_mut(shape.column) {
            shape.y = *y;
            *y += height(shape) + GAP.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    /// The numbers of an element's attributes.
    fn numbers<const N: usize>(element: &str, names: [&str; N]) -> [usize; N] {
        names.map(|name| {
            let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        })
    }

    #[test]
    fn texts_stay_in_their_boxes() {
        let long = r#""addresses":["2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff/128"],"routes":["2001:db8:1::/48 via 2001:db8:aaaa:bbbb:cccc:dddd:eeee:1","default via 192.0.2.1"]"#;
        let text = format!(
            r#"[{{"name":"eno1","type":"ethernet"}},{{"name":"bond0","type":"bond","below":["eno1"]}},{{"name":"bond0.10","type":"vlan","below":["bond0"],{long}}}]"#
        );
        let interfaces = json::parse("test", text.as_bytes()).unwrap();
        let drawing = svg(interfaces.as_list().unwrap());
        let [width] = numbers(&drawing, ["width"]);
        let mut boxed = 0;
        for part in drawing.split("<rect").skip(1) {
            let [x, box_width] = numbers(part, ["x", "width"]);
            assert!(x + box_width < width, "{drawing}");
            for text in part.split("<text").skip(1) {
                let [at, length] = numbers(text, ["x", "textLength"]);
                assert!(at > x && at + length < x + box_width, "{text}");
                boxed += 1;
            }
        }
        assert_eq!(boxed, 9);
        assert!(drawing.contains("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff/128</text>"), "{drawing}");
    }
}
