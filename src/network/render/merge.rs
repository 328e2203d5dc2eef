//! Merges a renderer's content into files that also have lines of the image.

/// How a file is merged into the existing one. An earlier instance's parts are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// resolv.conf(5): other options stay, name servers and domains are added (cloud-init 26.2, sysconfig.py, `_render_dns`).
    ResolvConf,
    /// initscripts' /etc/sysconfig/network: other variables stay (cloud-init 26.2, sysconfig.py, `render_network_state`).
    Control,
}

impl Merge {
    /// Merges the existing content and the renderer's, which begins with a comment.
    pub fn merged(self, old: &str, new: &str) -> String {
        match self {
            Merge::ResolvConf => resolv_conf(old, new),
            Merge::Control => control(old, new),
        }
    }
}

/// The image's lines come first, so that the comment separates them from the written ones.
fn resolv_conf(old: &str, new: &str) -> String {
    let own = || old.lines().take_while(|line| new.lines().next() != Some(line));
    let values = |key: &'static str| {
        own().filter_map(move |line| line.strip_prefix(key)?.strip_prefix([' ', '\t'])).flat_map(str::split_whitespace)
    };
    let mut out: String = own().flat_map(|line| [line, "\n"]).collect();
    for line in new.lines() {
        match line.split_once(' ') {
            Some(("nameserver", server)) if values("nameserver").any(|own| own == server) => {}
            // Of several lines the last one is used.
            Some(("search", domains)) => {
                let mut all: Vec<&str> = values("search").collect();
                all.extend(domains.split(' ').filter(|d| !values("search").any(|own| own == *d)));
                out += &format!("search {}\n", all.join(" "));
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

fn control(old: &str, new: &str) -> String {
    let is_own = |line: &&str| {
        !["NETWORKING", "IPV6_AUTOCONF"].iter().any(|name| line.contains(name))
            && !new.lines().any(|written| written == *line)
    };
    old.lines().filter(is_own).fold(new.to_owned(), |out, line| out + line + "\n")
}
