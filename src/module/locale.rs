//! # locale
//!
//! Sets the system's locale in /etc/default/locale, /etc/locale.conf, or the file that `locale_configfile` names, and generates it
//! if the distribution needs that. On Arch Linux the file is always /etc/locale.conf. Without the key the locale stays; if there is
//! none, it becomes C.UTF-8 or en_US.UTF-8. `locale: false` leaves it alone.
//!
//! ```yaml
//! locale: de_DE.UTF-8
//! ```
//!
//! ```schema
//! locale: bool | str
//! locale_configfile: str
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::Frequency;
use crate::machine::{Distro, Family};
use crate::root::{Attr, Command, Stage, installed};
use crate::system::ModuleContext;
use crate::system::packages;
use crate::system::shell::{set_variable, variable};

const GEN: &str = "/etc/locale.gen";
const SUPPORTED: &str = "/usr/share/i18n/SUPPORTED";
const DEBIAN: &str = "/etc/default/locale";
const SYSTEMD: &str = "/etc/locale.conf";
const ALPINE: &str = "/etc/profile.d/50-cloud-init-locale.sh";
/// The environment of Debian's programs while the locale is generated.
const NEUTRAL: &str = "C.UTF-8";

pub static MODULE: Module = Module {
    name: "locale",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|cx| wanted(cx).is_ok_and(|wanted| wanted.is_none_or(|wanted| !wanted.changed && !wanted.generated))),
    offline: true,
    ..Module::NEW
};

/// The work to do.
struct Wanted {
    locale: String,
    /// The file that holds the locale: the distribution's, or `locale_configfile`.
    file: String,
    /// The file does not say so yet.
    changed: bool,
    /// It is made by locale-gen.
    generated: bool,
}

fn wanted(cx: &ModuleContext) -> Result<Option<Wanted>> {
    let family = cx.distro.family;
    let file = other_file(cx).filter(|_| family != Family::Arch).unwrap_or_else(|| default_file(family).into());
    let lang = |file: &str| variable(&cx.root.text(file), "LANG").filter(|l| !l.is_empty()).map(str::to_owned);
    let given = cx.args.first().map(|arg| Value::from(arg.as_str())).or_else(|| cx.get("locale").cloned());
    if given.as_ref().is_some_and(Value::is_false) {
        return Ok(None);
    }
    // Alpine's file is an earlier instance's.
    let of_system = || Some(default_file(family)).filter(|_| family != Family::Alpine).and_then(lang);
    let default = || of_system().or_else(|| default_locale(cx.distro).map(str::to_owned));
    let Some(locale) = given.and_then(|value| value.text()).or_else(default) else { return Ok(None) };
    let now = lang(&file);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '@' | '-' | '+');
    if locale.is_empty() || !locale.chars().all(allowed) {
        return Err(Error::new("locale: expected the name of a locale, such as de_DE.UTF-8"));
    }
    let plain = ["c", "c.utf-8", "c.utf8", "posix"].contains(&locale.to_ascii_lowercase().as_str());
    let changed = now.is_none_or(|n| !n.eq_ignore_ascii_case(&locale));
    let generated = match family {
        Family::Debian => changed && !plain,
        Family::Arch | Family::Gentoo => !plain,
        _ => false,
    };
    Ok(Some(Wanted { locale, file, changed, generated }))
}

/// The file that the configuration names instead of the distribution's.
fn other_file(cx: &ModuleContext) -> Option<String> {
    cx.text("locale_configfile").filter(|file| file != default_file(cx.distro.family))
}

fn default_file(family: Family) -> &'static str {
    match family {
        Family::Debian => DEBIAN,
        Family::Alpine => ALPINE,
        _ => SYSTEMD,
    }
}

/// The locale of a system without one if none is configured. Gentoo may have one in /etc/env.d, and an unknown distribution
/// anywhere.
fn default_locale(distro: &Distro) -> Option<&'static str> {
    match (distro.family, distro.name) {
        (Family::Debian | Family::Alpine, _) => Some("C.UTF-8"),
        (Family::Gentoo, _) | (_, "unknown") => None,
        _ => Some("en_US.UTF-8"),
    }
}

/// The files. Debian's own program, where it is there, sets the locale once it is made; until then it would name one that is not
/// there.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(wanted) = wanted(cx)? else { return Ok(()) };
    if let Some(file) = other_file(cx).filter(|_| cx.distro.family == Family::Arch) {
        cx.report.warn(format_args!("Invalid locale_configfile {file}, only supported value is {SYSTEMD}"));
    }
    if wanted.generated {
        enable(cx, &wanted.locale)?;
    }
    match cx.distro.family {
        Family::Debian if wanted.changed && !wanted.generated && has_no_program(cx) => set_lang(cx, &wanted),
        Family::Debian => Ok(()),
        Family::Alpine => {
            let text = format!(
                "# Written once for each new instance.\nexport CHARSET=UTF-8\nexport LANG={}\nexport LC_COLLATE=C\n",
                wanted.locale
            );
            cx.root.write(&wanted.file, text, Attr::root(0o644))
        }
        _ if wanted.changed => set_lang(cx, &wanted),
        _ => Ok(()),
    }
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(wanted) = wanted(cx)? else { return Ok(()) };
    let neutral = |argv: Vec<String>| {
        let command = Command::new(argv);
        command.env("LANG", NEUTRAL).env("LANGUAGE", NEUTRAL).env("LC_ALL", NEUTRAL)
    };
    let is_debian = cx.distro.family == Family::Debian;
    let keep = if is_debian { vec!["--keep-existing".to_owned()] } else { vec![] };
    let generate = neutral([vec!["locale-gen".to_owned()], keep].concat());
    let update = neutral(vec![
        "update-locale".into(),
        format!("--locale-file={}", wanted.file),
        format!("LANG={}", wanted.locale),
    ]);
    if wanted.generated && cx.root.is_live() && installed::which(cx.root, "locale-gen").is_none() {
        packages::install(cx, &["locales".to_owned()])?;
    }
    let has_no_program = is_debian && has_no_program(cx);
    if has_no_program && wanted.changed {
        // Before the command: the file is on the disk together with the mark that says that this module ran.
        set_lang(cx, &wanted)?;
    }
    if wanted.generated {
        cx.root.run(generate)?;
    }
    match cx.distro.family {
        Family::Debian if has_no_program || !wanted.changed => Ok(()),
        Family::Debian => cx.root.run(update),
        Family::Gentoo => cx.root.run(Command::new(["eselect", "locale", "set", &wanted.locale])),
        _ => Ok(()),
    }
}

/// Whether a Debian system lacks the program that sets its locale. A tree without dpkg is not a complete system.
fn has_no_program(cx: &ModuleContext) -> bool {
    (cx.root.is_live() || installed::which(cx.root, "dpkg").is_some())
        && installed::which(cx.root, "update-locale").is_none()
}

fn set_lang(cx: &mut ModuleContext, wanted: &Wanted) -> Result<()> {
    let set = |text: &str| Ok(Some(set_variable(text, "LANG", &wanted.locale)));
    cx.root.edit_text(&wanted.file, Attr::root(0o644), set).map(drop)
}

/// Has the locale in /etc/locale.gen, without a comment sign before it. The others stay as they are.
fn enable(cx: &mut ModuleContext, locale: &str) -> Result<()> {
    // Except on Debian, only a line of this name makes a locale that LANG finds by it.
    let line = if cx.distro.family != Family::Debian && !locale.contains('.') {
        format!("{locale} UTF-8")
    } else {
        supported(&cx.root.text(SUPPORTED), locale)
    };
    cx.root.edit_text(GEN, Attr::root(0o644), |text| Ok(Some(with_locale(text, &line)))).map(drop)
}

fn with_locale(text: &str, line: &str) -> String {
    let mut found = false;
    let mut lines: Vec<&str> = Vec::new();
    for old in text.lines() {
        let bare = old.trim().trim_start_matches(['#', ' ']).trim_end();
        found |= bare == line;
        lines.push(if bare == line { line } else { old });
    }
    if !found {
        lines.push(line);
    }
    format!("{}\n", lines.join("\n").trim_end())
}

/// The line of locale.gen(5) for a locale: from the system's list of supported ones, UTF-8 first if none is named.
fn supported(list: &str, locale: &str) -> String {
    let (rest, modifier) = locale.split_once('@').map_or((locale, None), |(r, m)| (r, Some(m)));
    let (language, charset) = rest.split_once('.').map_or((rest, None), |(l, c)| (l, Some(c)));
    let same = |a: &str, b: &str| a.replace('-', "").eq_ignore_ascii_case(&b.replace('-', ""));
    let fits = |line: &&str| {
        let Some((name, map)) = line.split_once(' ') else { return false };
        let (name, its_modifier) = name.split_once('@').map_or((name, None), |(n, m)| (n, Some(m)));
        let its_language = name.split('.').next().unwrap_or(name);
        its_language == language && its_modifier == modifier && charset.is_none_or(|c| same(c, map))
    };
    let candidates: Vec<&str> = list.lines().map(str::trim).filter(fits).collect();
    let utf8 = candidates.iter().find(|l| l.ends_with(" UTF-8"));
    match utf8.or(candidates.first()) {
        Some(line) => (*line).to_owned(),
        None => {
            let charset = charset.unwrap_or("UTF-8");
            let modifier = modifier.map(|m| format!("@{m}")).unwrap_or_default();
            format!("{language}.{charset}{modifier} {charset}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    #[test]
    fn the_supported_list_decides_the_line() {
        let list = "de_DE.UTF-8 UTF-8\nde_DE ISO-8859-1\nde_DE@euro ISO-8859-15\nfi_FI.UTF-8 UTF-8\nfi_FI ISO-8859-1\n";
        for (locale, line) in [
            ("de_DE.UTF-8", "de_DE.UTF-8 UTF-8"),
            ("de_DE.utf8", "de_DE.UTF-8 UTF-8"),
            ("de_DE", "de_DE.UTF-8 UTF-8"),
            ("de_DE.ISO-8859-1", "de_DE ISO-8859-1"),
            ("de_DE@euro", "de_DE@euro ISO-8859-15"),
            ("xx_YY", "xx_YY.UTF-8 UTF-8"),
        ] {
            assert_eq!(supported(list, locale), line, "{locale}");
        }
        assert_eq!(supported("", "de_DE.UTF-8"), "de_DE.UTF-8 UTF-8");
    }

    /// locale.gen and the file with LANG, before the pivot.
    fn written(distro: &str, config: &str) -> (String, String) {
        let dir = TempDir::new("locale");
        let mut root = dir.root(Use::Tree);
        root.write(SUPPORTED, "ar_AE.UTF-8 UTF-8\nar_AE ISO-8859-6\n", Attr::root(0o644)).unwrap();
        before_pivot(&mut Inputs::new(distro, config).context(&mut root)).unwrap();
        (root.text(GEN), root.text(SYSTEMD))
    }

    #[test]
    fn lang_names_the_locale_that_locale_gen_makes() {
        for (locale, line) in [("ar_AE", "ar_AE UTF-8\n"), ("ar_AE.UTF-8", "ar_AE.UTF-8 UTF-8\n")] {
            let found = written("arch", &format!("locale: {locale}"));
            assert_eq!(found, (line.to_owned(), format!("LANG={locale}\n")));
        }
    }

    #[test]
    fn a_known_system_without_a_locale_gets_one() {
        let english = "LANG=en_US.UTF-8\n";
        assert_eq!(written("arch", "{}"), ("en_US.UTF-8 UTF-8\n".into(), english.into()));
        assert_eq!(written("arch", "{locale: en_US.UTF-8, locale_configfile: /etc/other}").1, english);
        assert_eq!(written("fedora", "{locale: en_US.UTF-8, locale_configfile: /etc/other}").1, "");
        for (distro, text) in [("aosc", english), ("fedora", english), ("gentoo", ""), ("unknown", "")] {
            assert_eq!(written(distro, "{}").1, text, "{distro}");
        }
    }
}
