//! Option spellings that argparse accepts and argh does not.

use argh::{CommandInfoWithArgs, FlagInfo, FlagInfoKind, Optionality};

/// Rewrites words to what argh accepts: splits `--option=value`, `-ovalue`, `-o=value` and combined switches
/// (`-ls`), and keeps the last value of an option that is given again, by the options of the command and its
/// subcommands. Other values, words after `--` and unknown options are kept; argh reports the latter.
pub fn expand(command: &CommandInfoWithArgs, words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut command = command.clone();
    let mut words = words.into_iter();
    let mut out = Vec::new();
    // The options that take one value, with the places of their values.
    let mut given: Vec<(&str, usize)> = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            out.push(word);
            break;
        }
        if let Some(sub) = command.commands.iter().find(|c| c.name == word) {
            command = sub.command.clone();
            given.clear();
            out.push(word);
            continue;
        }
        let before = out.len();
        if takes_next(command.flags, word, &mut out) {
            out.extend(words.next());
        }
        let Some([.., name, value]) = out.get(before..) else { continue };
        let Some(flag) = command.flags.iter().find(|f| is_option(f) && is_called(f, name)) else { continue };
        if flag.optionality == Optionality::Repeating {
            continue;
        }
        match given.iter().find(|(long, _)| *long == flag.long) {
            Some((_, place)) => {
                let value = value.clone();
                out.truncate(out.len() - 2);
                out[*place] = value;
            }
            None => given.push((flag.long, out.len() - 1)),
        }
    }
    out.extend(words);
    out
}

/// Whether it takes a value.
fn is_option(flag: &FlagInfo) -> bool {
    matches!(flag.kind, FlagInfoKind::Option { .. })
}

/// Whether `word` is its long or its short name.
fn is_called(flag: &FlagInfo, word: &str) -> bool {
    flag.long == word || word.strip_prefix('-').is_some_and(|w| flag.short.is_some_and(|c| w.chars().eq([c])))
}

/// Splits one word. Returns whether an option at its end takes the next word.
fn takes_next(flags: &[FlagInfo], word: String, out: &mut Vec<String>) -> bool {
    if word.starts_with("--") {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v)));
        match (flags.iter().find(|f| f.long == name).is_some_and(is_option), value) {
            (true, Some(value)) => out.extend([name.to_owned(), value.to_owned()]),
            (option, _) => {
                out.push(word);
                return option;
            }
        }
        return false;
    }
    let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
        out.push(word);
        return false;
    };
    let mut apart = Vec::new();
    for (at, letter) in letters.char_indices() {
        let Some(flag) = flags.iter().find(|f| f.short == Some(letter)) else {
            out.push(word);
            return false;
        };
        apart.push(format!("-{letter}"));
        if is_option(flag) {
            let value = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            out.append(&mut apart);
            out.extend(Some(value.strip_prefix('=').unwrap_or(value).to_owned()).filter(|_| !value.is_empty()));
            return value.is_empty();
        }
    }
    out.append(&mut apart);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::{ArgsInfo, FromArgs};

    /// top
    #[derive(FromArgs, ArgsInfo)]
    struct Top {
        /// a switch
        #[argh(switch, short = 'd')]
        #[allow(dead_code)]
        debug: bool,
        #[argh(subcommand)]
        #[allow(dead_code)]
        sub: Sub,
    }
    #[derive(FromArgs, ArgsInfo)]
    #[argh(subcommand)]
    enum Sub {
        Clean(#[allow(dead_code)] Clean),
    }
    /// sub
    #[derive(FromArgs, ArgsInfo)]
    #[argh(subcommand, name = "clean")]
    #[allow(dead_code)]
    struct Clean {
        /// logs
        #[argh(switch, short = 'l')]
        logs: bool,
        /// seed
        #[argh(switch, short = 's')]
        seed: bool,
        /// file
        #[argh(option, short = 'f')]
        file: Option<String>,
        /// several
        #[argh(option, short = 'c')]
        configs: Vec<String>,
        /// rest
        #[argh(positional)]
        rest: Vec<String>,
    }

    #[test]
    fn spellings() {
        for (line, expected) in [
            ("-d clean -ls", "-d clean -l -s"),
            ("clean -lsfx=y", "clean -l -s -f x=y"),
            ("clean -f=x -fy", "clean -f y"),
            ("clean -f x -l --file=y a -lf z b", "clean -f z -l a -l b"),
            ("clean -f x -f", "clean -f x -f"),
            ("clean -c x -c y --configs=z", "clean -c x -c y --configs z"),
            ("clean -f x -- -f y", "clean -f x -- -f y"),
            ("clean -lf -ls -s", "clean -l -f -ls -s"),
            ("clean --file=--a=b --logs", "clean --file --a=b --logs"),
            ("clean --file --logs=x --logs", "clean --file --logs=x --logs"),
            ("clean --logs=x --odd=y -lo", "clean --logs=x --odd=y -lo"),
            ("clean - -- -ls --file=x", "clean - -- -ls --file=x"),
            ("-ls clean", "-ls clean"),
            ("clean clean -h --help", "clean clean -h --help"),
        ] {
            let words = line.split(' ').map(str::to_owned);
            assert_eq!(expand(&Top::get_args_info(), words).join(" "), expected, "{line}");
        }
    }
}
