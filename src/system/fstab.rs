//! Lines of fstab(5).

/// The path of fstab.
pub const FSTAB: &str = "/etc/fstab";
/// The option that marks a line as cloud-init's or prepivot's.
pub const MARK: &str = "comment=cloudconfig";

/// Escapes characters that would end a field (fstab(5)). Existing octal escapes stay.
pub fn escape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    for (i, c) in field.char_indices() {
        let is_escape = || {
            let digits = field.as_bytes().get(i + 1..i + 4).unwrap_or_default();
            digits.len() == 3 && digits.iter().all(|b| (b'0'..=b'7').contains(b))
        };
        match c {
            ' ' => out.push_str("\\040"),
            '\t' => out.push_str("\\011"),
            '\n' => out.push_str("\\012"),
            '\r' => out.push_str("\\015"),
            '#' if i == 0 => out.push_str("\\043"),
            '\\' if !is_escape() => out.push_str("\\134"),
            c => out.push(c),
        }
    }
    out
}

/// The first four fields of a line that mounts something. None for comments and incomplete lines.
pub fn fields(line: &str) -> Option<[&str; 4]> {
    let mut words = line.split([' ', '\t']).filter(|w| !w.is_empty());
    let spec = words.next().filter(|w| !w.starts_with('#'))?;
    Some([spec, words.next()?, words.next().unwrap_or("auto"), words.next().unwrap_or("defaults")])
}

/// Whether a line was written for a cloud-config.
pub fn is_ours(line: &str) -> bool {
    fields(line).is_some_and(|[.., options]| options.split(',').any(|o| o == MARK))
}

/// The text of fstab without the lines that were written for a cloud-config and whose device begins with `prefix`.
pub fn without_ours(text: &str, prefix: &str) -> String {
    let is_of = |line: &str| is_ours(line) && fields(line).is_some_and(|[device, ..]| device.starts_with(prefix));
    text.split_inclusive('\n').filter(|line| !is_of(line.trim_end())).collect()
}

/// The name of the unit that systemd makes for a mount point (systemd-escape(1), --path --suffix=mount).
pub fn unit(point: &str) -> String {
    let parts: Vec<&str> = point.split('/').filter(|p| !p.is_empty()).collect();
    if parts.is_empty() {
        return "-.mount".into();
    }
    let mut name = String::new();
    for (i, byte) in parts.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if i == 0 => name.push_str("\\x2e"),
            b if b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'.') => name.push(char::from(b)),
            b => name.push_str(&format!("\\x{b:02x}")),
        }
    }
    format!("{name}.mount")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stays_one_field() {
        for (field, escaped) in [
            ("/mnt/Cdrom Drive", "/mnt/Cdrom\\040Drive"),
            ("/a\n/dev/evil / ext4", "/a\\012/dev/evil\\040/\\040ext4"),
            ("a\\b", "a\\134b"),
            ("a\\040b", "a\\040b"),
            ("a\\04", "a\\13404"),
            ("#x", "\\043x"),
        ] {
            assert_eq!(escape(field), escaped);
        }
    }

    #[test]
    fn units_are_named_as_systemd_does() {
        for (point, name) in [
            ("/", "-.mount"),
            ("/mnt/data", "mnt-data.mount"),
            ("/mnt/a-b c/", "mnt-a\\x2db\\x20c.mount"),
            ("/.hidden", "\\x2ehidden.mount"),
            ("/ü", "\\xc3\\xbc.mount"),
        ] {
            assert_eq!(unit(point), name);
        }
    }
}
