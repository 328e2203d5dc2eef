//! Which rules sudo's parser takes (sudoers(5), "User specification"). A line that it refuses can cost every user of a machine
//! sudo: older versions ignore a whole file for it, and with it those of other users.

const TAGS: [&str; 16] = [
    "EXEC",
    "NOEXEC",
    "FOLLOW",
    "NOFOLLOW",
    "INTERCEPT",
    "NOINTERCEPT",
    "LOG_INPUT",
    "NOLOG_INPUT",
    "LOG_OUTPUT",
    "NOLOG_OUTPUT",
    "MAIL",
    "NOMAIL",
    "PASSWD",
    "NOPASSWD",
    "SETENV",
    "NOSETENV",
];
/// Options with a value, and those whose value begins with a digit.
const OPTIONS: [&str; 7] = ["ROLE", "TYPE", "PRIVS", "LIMITPRIVS", "CWD", "CHROOT", "APPARMOR_PROFILE"];
const TIMES: [&str; 3] = ["NOTBEFORE", "NOTAFTER", "TIMEOUT"];
const DIGESTS: [&str; 4] = ["sha224:", "sha256:", "sha384:", "sha512:"];
/// The length of the shortest digest, of SHA-224 in base64 without padding.
const SHORTEST_DIGEST: usize = 38;

/// Whether a rule, without the user's name, is one: `HOSTS = [(USERS[:GROUPS])] [OPTION=VALUE] [TAG:] COMMAND, ...`.
pub(super) fn is_rule(rule: &str) -> bool {
    // A byte that no editor shows could hide the rest of a line.
    let is_hidden = |c: char| c.is_control() && c != '\t';
    let mut scan = Scan(rule);
    !rule.contains(is_hidden) && scan.rule().is_some() && (scan.0.is_empty() || scan.is_comment())
}

/// What is left of a rule.
struct Scan<'a>(&'a str);

impl<'a> Scan<'a> {
    fn space(&mut self) -> &mut Self {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        self
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// A `#` with a digit behind it is a number of a user.
    fn is_comment(&self) -> bool {
        self.0.strip_prefix('#').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }

    /// The text up to one of `ends` that has no backslash before it and is not in quotes. None if a backslash ends the line, which
    /// would then go on.
    fn until(&mut self, ends: &[char]) -> Option<&'a str> {
        let mut at = 0;
        while let Some(c) = self.0[at..].chars().next() {
            let rest = &self.0[at + c.len_utf8()..];
            at += match c {
                '\\' => 1 + rest.chars().next()?.len_utf8(),
                '"' => 1 + rest.find('"').map_or(0, |end| end + 1),
                c if ends.contains(&c) => break,
                c => c.len_utf8(),
            };
        }
        let (taken, rest) = self.0.split_at(at);
        self.0 = rest;
        Some(taken)
    }

    /// Items between commas, each without white space. None if one is empty.
    fn list(&mut self, ends: &[char]) -> Option<()> {
        loop {
            while self.space().takes("!") {}
            self.until(&[&[' ', '\t', ',', '!', '('], ends].concat()).filter(|item| !item.is_empty())?;
            if !self.space().takes(",") {
                return Some(());
            }
        }
    }

    fn rule(&mut self) -> Option<()> {
        loop {
            self.list(&['=', ':', ')'])?;
            self.takes("=").then_some(())?;
            loop {
                self.command()?;
                if !self.space().takes(",") {
                    break;
                }
            }
            if !self.takes(":") {
                return Some(());
            }
        }
    }

    fn command(&mut self) -> Option<()> {
        if self.space().takes("(") {
            let ends = [')', ':'];
            if !self.space().0.starts_with(ends) {
                self.list(&ends)?;
            }
            if self.takes(":") && !self.space().0.starts_with(')') {
                self.list(&[')'])?;
            }
            self.takes(")").then_some(())?;
        }
        loop {
            while self.space().takes("!") {}
            let end = self.0.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(self.0.len());
            let (word, rest) = self.0.split_at(end);
            let mut after = Scan(rest);
            if TAGS.contains(&word) && after.space().takes(":") {
                self.0 = after.0;
            } else if (OPTIONS.contains(&word) || TIMES.contains(&word)) && after.takes("=") {
                let value = after.until(&[' ', '\t', ','])?;
                let fits = if TIMES.contains(&word) {
                    value.starts_with(|c: char| c.is_ascii_digit())
                } else {
                    !value.is_empty()
                };
                fits.then_some(())?;
                self.0 = after.0;
            } else if DIGESTS.iter().any(|name| self.takes(name)) {
                (self.until(&[' ', '\t', ','])?.len() >= SHORTEST_DIGEST).then_some(())?;
                self.space().takes(",");
            } else {
                break;
            }
        }
        let name = Scan(self.0).until(&[' ', '\t', ',', ':', '='])?;
        if self.0.starts_with('^') {
            let end = ["$ ", "$\t", "$,"].iter().filter_map(|end| self.0.find(end)).min();
            self.0 = self.0.get(end.or_else(|| self.0.strip_suffix('$').map(str::len))? + 1..)?;
        } else if !name.starts_with('/') && !matches!(name, "sudoedit" | "list") {
            // ALL, or an alias.
            let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            self.0 = self.0.get(name.len()..).filter(|_| is_name)?;
            return Some(());
        }
        // The arguments.
        self.until(&[',', ':', '#'])?;
        (!self.0.starts_with('#') || self.is_comment()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{TempDir, skip};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    const GOOD: &[&str] = &[
        "ALL=(ALL) ALL",
        "ALL=(ALL) NOPASSWD:ALL",
        "ALL=(ALL:ALL) ALL",
        "ALL = ( ALL : ALL ) NOPASSWD : ALL",
        "ALL=NOPASSWD:/usr/bin/apt",
        "ALL=ALL",
        "ALL=(root) NOPASSWD: /usr/bin/systemctl restart nginx, /usr/bin/journalctl",
        "ALL=(ALL) NOPASSWD:SETENV: ALL",
        "ALL=(ALL) ALL, !/bin/su, !SHELLS",
        "web1,web2=(ALL) ALL",
        "10.0.0.0/8=(ALL) ALL",
        "h-1.example.org=(ALL) ALL",
        "ALL=(#1000) ALL",
        "ALL=(%wheel) ALL",
        "ALL=() ALL",
        "ALL=(:docker) /bin/ls",
        "ALL=(ALL) ALL # why",
        "ALL=(ALL) /bin/ls # why",
        "ALL=(ALL) sudoedit /etc/hosts",
        "ALL=(ALL) list",
        "ALL=(ALL) ROLE=unconfined_r TYPE=unconfined_t ALL",
        "ALL=(ALL) TIMEOUT=10m ALL",
        "ALL=(ALL) NOTBEFORE=20240101000000Z ALL",
        "ALL=(ALL) CWD=/tmp /bin/ls",
        "ALL=(ALL) /bin/ls \"a b\"",
        "ALL=(ALL) /bin/ls \"\"",
        "ALL=(ALL) /bin/ls \"a",
        "ALL=(ALL) /bin/ls a\\,b a\\:b a=b",
        "ALL=(ALL) /bin/ls \\ x",
        "ALL=(ALL) /bin/x (y)",
        "ALL=(ALL) /bin/kill -9 [0-9]*",
        "ALL=(ALL) /usr/bin/pip install a==1",
        "ALL=(ALL) sha224:0GomF8mNN3wlDt1HD9XldjJ3SNgpFdbjO1+NsQ== /bin/ls",
        "ALL=(ALL) ^/usr/bin/[a-z]+$ ^x$",
        "ALL=(ALL) ^/usr/bin/[a-z]+$",
        "ALL=(ALL) /usr/bin/*",
        "ALL=(ALL) /usr/bin/",
        "ALL=(ALL) ALL : web1=(root) /bin/ls",
        "ALL=(ALL) ALL:ALL=ALL",
        "!web1=(ALL) ALL",
        "ALL=(ALL) CMDS",
        "ALL=(ALL,!root) ALL",
        "ALL=(ALL)NOPASSWD:ALL",
        "ALL=(ALL) NOPASSWD:ALL,PASSWD:/bin/su",
        "ALL=(ALL) NOPASSWD",
        "ALL=(ALL) ! ALL",
        "ALL=(ALL) NOPASSWD:!/bin/su",
        "ALL=(user@dom) ALL",
        "\"ALL\"=(ALL) ALL",
        "+netgroup=(ALL) ALL",
        "ALL=(ALL) LOG_OUTPUT: NOLOG_INPUT: /bin/x",
        "ALL=(ALL)\tALL",
        "ALL=(ALL) /bin/ls,/bin/cat , /bin/x",
        "ALL=(ALL) MAIL:ALL",
        "ALL=(ALL) INTERCEPT:ALL",
    ];
    const BAD: &[&str] = &[
        "%admin ALL=(ALL) ALL",
        "u ALL=(ALL) ALL",
        "ALL=(ALL ALL",
        "ALL=ALL) ALL",
        "ALL (ALL) ALL",
        "ALL",
        "ALL=(ALL)",
        "ALL=",
        "=ALL",
        "ALL==ALL",
        "ALL=(ALL) NOPASSWD:",
        "ALL=(ALL) NOPASS:ALL",
        "ALL=(ALL) NOPASSWD ALL",
        "ALL=(ALL) nopasswd:ALL",
        "ALL=(ALL) NOPASSWD=ALL",
        "ALL=(ALL) NOPASSWD:ALL:",
        "ALL=(ALL) NOEXEC:ALL NOPASSWD:ALL",
        "ALL=(ALL) ls",
        "ALL=(ALL) /bin/ls, ls",
        "ALL=(ALL) apt-get update",
        "ALL=(ALL) ~/bin/x",
        "ALL=(ALL) all",
        "ALL=(ALL) ALL,",
        "ALL=(ALL) ,ALL",
        "ALL=(ALL) ALL ALL",
        "ALL=(ALL) ALL;",
        "ALL=(ALL) ALL \\",
        "ALL=(ALL) /bin/ls\\",
        "ALL=(ALL) /bin/ls a:b",
        "ALL=(ALL) /bin/ls #1",
        "ALL=(ALL) #1000",
        "ALL=(ALL) \"ALL\"",
        "ALL=(ALL) \"/bin/ls\"",
        "ALL=(ALL) (root) ALL",
        "ALL=(ALL):ALL",
        "ALL=[ALL] ALL",
        "ALL=(a b) ALL",
        "ALL=(ALL) ALL:ALL",
        "ALL=(ALL) TIMEOUT=x ALL",
        "ALL=(ALL) NOTBEFORE=x ALL",
        "ALL=(ALL) FOO=x ALL",
        "ALL=(ALL) ^/usr/bin/[a-z",
        "ALL=(ALL) sha256:abc /bin/ls",
        "A",
        "false",
        "no",
        "NOPASSWD:ALL",
        "",
        " ",
        "\\",
        "ALL=\\",
        "é=ALL é",
    ];

    #[test]
    fn rules_are_those_of_sudo() {
        for (rules, expected) in [(GOOD, true), (BAD, false)] {
            for rule in rules {
                assert_eq!(is_rule(rule), expected, "{rule}");
            }
        }
    }

    #[test]
    fn any_text_is_judged() {
        let text = GOOD.join("\n");
        crate::base::testing::mutations(text.as_bytes(), 2_000, |bytes| {
            for rule in String::from_utf8_lossy(bytes).lines() {
                assert!(!is_rule(rule) || !rule.contains(['\0', '\r', '\u{1b}']), "{rule:?}");
            }
        });
    }

    #[test]
    fn visudo_judges_the_same() {
        let dir = TempDir::new("visudo");
        let judged = |rule: &str| {
            let path = dir.0.join("sudoers");
            std::fs::write(&path, format!("u {rule}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o440)).unwrap();
            Some(Command::new("visudo").args(["-c", "-f"]).arg(path).output().ok()?.status.success())
        };
        if judged("ALL=ALL") != Some(true) {
            return skip("there is no visudo");
        }
        for (rules, expected) in [(GOOD, true), (BAD, false)] {
            for rule in rules.iter().filter(|rule| !rule.trim().is_empty()) {
                assert_eq!(judged(rule), Some(expected), "{rule}");
            }
        }
    }
}
