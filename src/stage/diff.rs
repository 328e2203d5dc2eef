//! A line diff of two texts.

/// Longer texts, in lines, are not compared: the table needs memory for the product of both lengths.
const MAX_LINES: usize = 2_000;

/// The removed (`-`) and added (`+`) lines, each after `indent`, by the longest common subsequence. Equal
/// lines are left out.
pub fn lines(old: &str, new: &str, indent: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        return format!("{indent}({} lines become {})\n", old.len(), new.len());
    }
    // common[i][j]: how many lines old[i..] and new[j..] have in common, in order.
    let width = new.len() + 1;
    let mut common = vec![0usize; (old.len() + 1) * width];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let (down, right) = (common[(i + 1) * width + j], common[i * width + j + 1]);
            common[i * width + j] = if a == b { common[(i + 1) * width + j + 1] + 1 } else { down.max(right) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j >= new.len() || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            out += &format!("{indent}- {}\n", old[i]);
            i += 1;
        } else {
            out += &format!("{indent}+ {}\n", new[j]);
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_and_what_comes() {
        assert_eq!(lines("a\nb\nc\n", "a\nx\nc\nd\n", ""), "- b\n+ x\n+ d\n");
        assert_eq!(lines("a\n", "a\n", ""), "");
        assert_eq!(lines("", "a\n", "  "), "  + a\n");
        assert_eq!(lines("a\nb\n", "", ""), "- a\n- b\n");
    }
}
