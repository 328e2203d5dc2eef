//! FAT's two kinds of names: 8.3 in code page 437, and long ones in UTF-16 (Microsoft FAT specification, 6 and 7).

use super::bytes::{array, utf16};

/// The most characters of a long name, and so the most entries of 13.
const MAX_LONG: usize = 255;
const MAX_PARTS: u8 = 20;

/// Code page 437's upper half, which Linux's vfat uses by default.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀\
αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// A long name while it is assembled: its parts come before the short entry, the last part first.
#[derive(Debug, Default)]
pub struct LongName {
    units: Vec<u16>,
    /// The part that must come next; 0 after the last one.
    next: u8,
    checksum: u8,
    started: bool,
}

impl LongName {
    /// Takes one long entry. Parts that do not follow on each other make no name.
    pub fn add(&mut self, entry: &[u8; 32]) {
        let (order, checksum) = (entry[0], entry[13]);
        if order & 0x40 != 0 {
            *self = LongName { units: Vec::new(), next: order & 0x3f, checksum, started: true };
        }
        if !self.started
            || order & 0x3f != self.next
            || checksum != self.checksum
            || !(1..=MAX_PARTS).contains(&self.next)
        {
            *self = LongName::default();
            return;
        }
        self.next -= 1;
        let part = [(1, 5), (14, 6), (28, 2)].into_iter().flat_map(|(at, n)| (0..n).map(move |i| at + 2 * i));
        self.units.splice(0..0, part.filter_map(|at| array(entry, at).map(u16::from_le_bytes)));
    }

    /// The whole name, if no part was missing and all belong to `entry`, the short one after them.
    pub fn finish(mut self, entry: &[u8; 32]) -> Option<String> {
        let end = self.units.iter().position(|unit| *unit == 0).unwrap_or(self.units.len());
        self.units.truncate(end);
        let sum = entry.iter().take(11).fold(0u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
        let whole = self.started && self.next == 0 && sum == self.checksum;
        (whole && (1..=MAX_LONG).contains(&self.units.len())).then(|| utf16(self.units))
    }
}

/// The letters of code page 437 beyond ASCII that have a small form, and that form.
const CASES: [(char, char); 13] = [
    ('Ç', 'ç'),
    ('Ä', 'ä'),
    ('Å', 'å'),
    ('É', 'é'),
    ('Æ', 'æ'),
    ('Ö', 'ö'),
    ('Ü', 'ü'),
    ('Ñ', 'ñ'),
    ('Γ', 'γ'),
    ('Σ', 'σ'),
    ('Φ', 'φ'),
    ('Θ', 'θ'),
    ('Ω', 'ω'),
];

/// A character of code page 437 in lower case.
fn small(c: char) -> char {
    CASES.iter().find(|(capital, _)| *capital == c).map_or(c.to_ascii_lowercase(), |(_, small)| *small)
}

/// A short entry's name as Linux's vfat shows it: in lower case if Windows NT's two flags say so.
pub fn short_name(entry: &[u8; 32]) -> String {
    let text = |bytes: &[u8], lower: bool| {
        let text: String = bytes.iter().map(|byte| cp437(*byte)).collect();
        let text = text.trim_end_matches(' ');
        if lower { text.chars().map(small).collect() } else { text.to_string() }
    };
    let mut base = *entry.first_chunk::<8>().unwrap_or(&[b' '; 8]);
    // 0xE5 as the first byte means a deleted file, so a name that starts with it has 0x05 there.
    if base[0] == 0x05 {
        base[0] = 0xe5;
    }
    let case = entry[12];
    let base = text(&base, case & 0x08 != 0);
    match text(&array::<3>(entry, 8).unwrap_or([b' '; 3]), case & 0x10 != 0) {
        extension if extension.is_empty() => base,
        extension => format!("{base}.{extension}"),
    }
}

/// A label's 11 bytes as text, without the spaces at its end.
pub fn label(bytes: [u8; 11]) -> String {
    let text: String = bytes.into_iter().map(cp437).collect();
    text.trim_end_matches([' ', '\0']).to_string()
}

fn cp437(byte: u8) -> char {
    match byte {
        0..=0x7f => char::from(byte),
        _ => CP437.chars().nth(usize::from(byte) - 0x80).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(name: &[u8; 11], case: u8) -> [u8; 32] {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(name);
        entry[12] = case;
        entry
    }

    #[test]
    fn short_names_have_the_case_that_windows_gave() {
        assert_eq!(short_name(&short(b"USERDATATXT", 0)), "USERDATA.TXT");
        assert_eq!(short_name(&short(b"EC2        ", 0x08)), "ec2");
        assert_eq!(short_name(&short(b"A B     TXT", 0x10)), "A B.txt");
        assert_eq!(short_name(&short(b"\x05\x81\x9a     \xff  ", 0)), "σüÜ.\u{a0}");
        assert_eq!((CP437.chars().count(), cp437(0xe1), cp437(0xdb)), (128, 'ß', '█'));
    }

    /// The entries of a long name for a short entry, as a writer makes them.
    fn long(name: &str, short: &[u8; 32]) -> Vec<[u8; 32]> {
        let sum = short[..11].iter().fold(0u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
        let mut units: Vec<u16> = name.encode_utf16().collect();
        if !units.len().is_multiple_of(13) {
            units.push(0);
        }
        units.resize(units.len().next_multiple_of(13), 0xffff);
        let count = units.len() / 13;
        let entry = |(i, part): (usize, &[u16])| {
            let mut entry = [0; 32];
            entry[0] = (i + 1) as u8 | if i + 1 == count { 0x40 } else { 0 };
            (entry[11], entry[13]) = (0x0f, sum);
            for (unit, at) in part.iter().zip((1..11).step_by(2).chain((14..26).step_by(2)).chain([28, 30])) {
                entry[at..at + 2].copy_from_slice(&unit.to_le_bytes());
            }
            entry
        };
        units.chunks(13).enumerate().map(entry).rev().collect()
    }

    fn joined(parts: &[[u8; 32]], short: &[u8; 32]) -> Option<String> {
        let mut name = LongName::default();
        parts.iter().for_each(|part| name.add(part));
        name.finish(short)
    }

    #[test]
    fn long_names_are_whole_or_none() {
        let short = short(b"META_D~1JSO", 0);
        for name in ["meta_data.json", "thirteen char", "ünïcødé 😀 ключ", &"x".repeat(255)] {
            let parts = long(name, &short);
            assert_eq!(joined(&parts, &short).as_deref(), Some(name));
            assert_eq!(joined(&parts[..parts.len() - 1], &short), None, "the first part is missing");
            assert_eq!(joined(&parts[1..], &short), None, "the last part is missing");
            assert_eq!(joined(&parts, &super::tests::short(b"OTHER   TXT", 0)), None, "another file's");
        }
        assert_eq!(joined(&long(&"x".repeat(256), &short), &short), None);
    }
}
