//! Lines of fstab for disks that the machine does not have: cloud-init writes some of them by the name that the document has, and
//! prepivot, which cannot know the disks of an image, by the device that the name is for.

use std::collections::{HashMap, HashSet, VecDeque};

/// The mark of both at the end of a line's options.
const MARK: &str = "comment=cloudconfig";

/// A line of fstab that a document's entry made.
struct Entry<'a> {
    line: &'a str,
    device: &'a str,
    point: &'a str,
}

impl<'a> Entry<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (device, point) = (words.next()?, words.next()?);
        line.contains(MARK).then_some(Entry { line, device, point })
    }

    /// Whether the device is a name which is no path, tag or share: that of a disk or of an alias.
    fn is_name(&self) -> bool {
        let name =
            self.device.strip_prefix("/dev/").filter(|name| name.starts_with("ephemeral")).unwrap_or(self.device);
        !name.contains(['/', '=', ':'])
    }
}

/// Both texts without the lines for missing disks that one of them alone has, and with one name for a disk that both have.
pub fn without_missing<'a>(there: &'a str, wanted: &'a str, is_there: &dyn Fn(&str) -> bool) -> (String, String) {
    let (by_there, by_wanted): (Vec<Entry>, Vec<Entry>) =
        (there.lines().filter_map(Entry::of).collect(), wanted.lines().filter_map(Entry::of).collect());
    let is_missing = |entry: &Entry| entry.is_name() || entry.device.starts_with("/dev/") && !is_there(entry.device);
    let points = |entries: &[Entry<'a>]| entries.iter().map(|entry| entry.point).collect::<HashSet<&str>>();
    let (points_there, points_wanted) = (points(&by_there), points(&by_wanted));
    let kept = |line: &str, others: &HashSet<&str>| {
        Entry::of(line).is_none_or(|entry| !is_missing(&entry) || others.contains(entry.point))
    };
    // By mount point, in order: swap has the same one each time.
    let mut named: HashMap<&str, VecDeque<&str>> = HashMap::new();
    for entry in by_there.iter().filter(|entry| is_missing(entry)) {
        named.entry(entry.point).or_default().push_back(entry.device);
    }
    let renamed = |line: &str| {
        let Some(entry) = Entry::of(line).filter(|entry| is_missing(entry)) else { return line.to_owned() };
        match named.get_mut(entry.point).and_then(VecDeque::pop_front) {
            Some(device) => entry.line.replacen(entry.device, device, 1),
            None => line.to_owned(),
        }
    };
    let there = there.lines().filter(|line| kept(line, &points_wanted)).map(|line| format!("{line}\n")).collect();
    let wanted = wanted.lines().filter(|line| kept(line, &points_there)).map(renamed).map(|line| line + "\n").collect();
    (there, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(there: &str, wanted: &str) -> bool {
        let (there, wanted) = without_missing(there, wanted, &|device| device == "/dev/vda1");
        there == wanted
    }

    #[test]
    fn missing_disks_are_left_out_or_named_alike() {
        assert!(without("UUID=1 / ext4\n", "UUID=1 / ext4\n/dev/vdb /mnt auto comment=cloudconfig\n"));
        assert!(without("sdc /a auto comment=cloudconfig\n", "/dev/sdc /a auto comment=cloudconfig\n"));
        assert!(without("/dev/ephemeral0 /mnt auto comment=cloudconfig\n", ""));
        // Swap has no mount point of its own.
        let (there, wanted) = ("sdb none swap comment=cloudconfig\n", "/dev/sdb none swap comment=cloudconfig\n");
        assert!(without(&there.repeat(2), &wanted.repeat(2)));
        assert!(!without(there, &wanted.repeat(2)));
    }

    #[test]
    fn present_disks_shares_and_own_lines_are_compared() {
        assert!(!without("", "/dev/vda1 /a auto comment=cloudconfig\n"));
        assert!(!without("", "/dev/vdb /a auto\n"));
        assert!(!without("h:/x /a nfs comment=cloudconfig\n", ""));
        assert!(!without("sdc /a auto comment=cloudconfig\n", "/dev/sdc /a xfs comment=cloudconfig\n"));
    }
}
