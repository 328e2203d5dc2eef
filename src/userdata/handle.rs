//! Handles each part by its type: merges it, keeps it as a script or boothook, renders it first, or reports
//! it.

use super::cloud_config::CloudConfig;
use super::kind::{self, PartKind};
use super::parts::Part;
use super::{UserData, UserScript, When, file_name, jinja, systemd};
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value, json};

/// Why a part of type `text/jinja2` is ignored.
const NOT_A_TEMPLATE: &str = "a template is UTF-8 and begins with `## template: jinja`";
/// Why the output of a template is ignored.
const NOT_FOR_TEMPLATES: &str = "a template can be a cloud-config, a script or a boothook";

/// Handles the parts of one source.
pub struct Handler<'a> {
    source: &'a str,
    vendor: bool,
    instance_data: &'a Value,
    report: &'a Problems,
    config: CloudConfig,
    /// The budget for all templates of the source.
    fuel: jinja::Fuel,
    out: UserData,
    /// The warning for each part that only a part-handler may handle.
    for_handlers: Vec<String>,
}

impl<'a> Handler<'a> {
    pub fn new(source: &'a str, vendor: bool, instance_data: &'a Value, report: &'a Problems) -> Self {
        let (config, fuel, out) = (CloudConfig::default(), jinja::Fuel::default(), UserData::default());
        Handler { source, vendor, instance_data, report, config, fuel, out, for_handlers: Vec::new() }
    }

    /// The result of all parts, except for that of unfolding; and the warnings for parts that no part-handler
    /// handles.
    pub fn finish(mut self) -> (UserData, Vec<String>) {
        self.out.cloud_config = self.config.into();
        (self.out, self.for_handlers)
    }

    /// Handles one part. Warnings name the source and the part, never content.
    pub fn part(&mut self, part: &Part) {
        match PartKind::of_type(&part.content_type) {
            Some(PartKind::Jinja) => self.template(part),
            Some(kind) => self.content(kind, part, &part.content),
            None if part.content.is_empty() => {}
            None if self.systemd(part) => {}
            None => self.unhandled(part),
        }
    }

    /// Takes the credentials of a document of systemd's IMDS units as the key `systemd_credentials`. Returns false if it is none.
    fn systemd(&mut self, part: &Part) -> bool {
        let Some(credentials) =
            kind::is_sniffed(&part.content_type).then(|| systemd::credentials(&part.content)).flatten()
        else {
            return false;
        };
        let name = format!("{}: {}", self.source, part.filename);
        let config = credentials.map(|list| Map::from_iter([(systemd::KEY, list)]));
        let content = config.map(|config| json::to_string(&Value::Map(config)));
        if let Err(e) =
            content.and_then(|text| self.config.add(PartKind::CloudConfig, &part.filename, text.as_bytes(), &|_| None))
        {
            self.report.warn(format_args!("{name}: systemd.credentials: {e}"));
        }
        true
    }

    fn unhandled(&mut self, part: &Part) {
        let why = if part.content_type != kind::NOT_MULTIPART {
            "of a type that is not supported"
        } else if part.content.starts_with("\u{feff}".as_bytes()) {
            "beginning with a byte order mark, which hides what they are"
        } else {
            "beginning with none of the known headers such as #cloud-config"
        };
        let (source, name, content_type) = (self.source, &part.filename, &part.content_type);
        // Tools look for the beginning of this message.
        let what = if content_type == kind::NOT_MULTIPART { "non-multipart" } else { "unknown content-type" };
        let text = format!("Unhandled {what} ({content_type}) userdata: {source}: {name}, {why}");
        if content_type == kind::NOT_MULTIPART {
            self.report.warn(text);
        } else {
            self.for_handlers.push(text);
        }
        self.out.unsupported.push(format!("{content_type} ({name})"));
    }

    fn content(&mut self, kind: PartKind, part: &Part, content: &Bytes) {
        match kind {
            PartKind::CloudConfig | PartKind::CloudConfigJsonp => {
                let header = |name: &str| part.header(name).map(str::to_owned);
                if let Err(e) = self.config.add(kind, &part.filename, content, &header) {
                    self.report.warn(format_args!(
                        "Failed at merging in cloud config part from {}: {}: {e}",
                        part.filename, self.source
                    ));
                }
            }
            PartKind::Script => self.script(part, content, if self.vendor { When::Vendor } else { When::User }),
            PartKind::ScriptPerBoot => self.script(part, content, When::PerBoot),
            PartKind::ScriptPerInstance => self.script(part, content, When::PerInstance),
            PartKind::ScriptPerOnce => self.script(part, content, When::PerOnce),
            PartKind::Boothook => self.boothook(part, content),
            PartKind::PartHandler => {
                let (source, name) = (self.source, &part.filename);
                self.for_handlers
                    .push(format!("{source}: {name}: a part-handler needs python3, which the root does not have"));
                self.out.unsupported.push(format!("{} ({})", part.content_type, part.filename));
            }
            PartKind::CloudConfigArchive | PartKind::Include | PartKind::IncludeOnce | PartKind::Jinja => {
                self.unhandled(part)
            }
        }
    }

    /// Keeps a script. Of two scripts with the same name in the same folder, the later one replaces the
    /// first.
    fn script(&mut self, part: &Part, content: &Bytes, when: When) {
        // Scripts by frequency are named after the last component of a path, others after all of it.
        let name = match when {
            When::User | When::Vendor => &part.filename,
            _ => part.filename.rsplit('/').next().unwrap_or_default(),
        };
        let script = UserScript { name: file_name(name), content: with_unix_lines(content), when };
        match self.out.scripts.iter_mut().find(|s| s.name == script.name && s.when == when) {
            Some(old) => *old = script,
            None => self.out.scripts.push(script),
        }
    }

    fn boothook(&mut self, part: &Part, content: &Bytes) {
        let content = with_unix_lines(content);
        let hook = (file_name(&part.filename), Bytes::from(script_of_boothook(&content)));
        match self.out.boothooks.iter_mut().find(|(name, _)| *name == hook.0) {
            Some(old) => *old = hook,
            None => self.out.boothooks.push(hook),
        }
    }

    /// Renders a template; the header of its output determines its type.
    fn template(&mut self, part: &Part) {
        let (source, name) = (self.source, &part.filename);
        let text = std::str::from_utf8(kind::trim_start(&part.content)).ok();
        let Some(template) = text.and_then(jinja::body) else {
            return self.report.warn(format_args!("{source}: {name}: ignored: {NOT_A_TEMPLATE}"));
        };
        let rendered = match jinja::render_with(template, self.instance_data, &self.fuel) {
            Ok(rendered) => rendered,
            Err(e) => return self.report.warn(format_args!("{source}: {name}: ignored: {e}")),
        };
        if let Some(warning) = rendered.warning(name) {
            self.report.warn(format_args!("{source}: {warning}"));
        }
        let content = &Bytes::from(rendered.text.into_bytes());
        match PartKind::of_content(content) {
            Some(
                kind @ (PartKind::CloudConfig | PartKind::CloudConfigJsonp | PartKind::Script | PartKind::Boothook),
            ) => {
                self.content(kind, part, content);
            }
            _ if content.is_empty() => {}
            _ => {
                self.report.warn(format_args!("{source}: {name}: ignored: {NOT_FOR_TEMPLATES}"));
                self.out.unsupported.push(format!("{} ({name})", part.content_type));
            }
        }
    }
}

/// If the first line of the content ends in CRLF, converts all line ends to LF.
fn with_unix_lines(content: &Bytes) -> Bytes {
    let first_end = content.iter().position(|b| *b == b'\n').unwrap_or(0);
    if first_end == 0 || content.get(first_end - 1) != Some(&b'\r') {
        return content.clone();
    }
    let followed = content.iter().copied().zip(content.iter().copied().skip(1).chain([0]));
    followed.filter(|pair| *pair != (b'\r', b'\n')).map(|(byte, _)| byte).collect::<Vec<u8>>().into()
}

/// The script of a boothook: everything after the header; it may begin on the header's line.
fn script_of_boothook(content: &[u8]) -> &[u8] {
    let mut rest = kind::trim_start(content);
    if PartKind::of_content(rest) == Some(PartKind::Boothook) {
        rest = rest.get("#cloud-boothook".len()..).unwrap_or_default();
    }
    kind::trim_start(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (text, expected) in [
            ("#!/bin/sh\r\na\r\r\nb\r\n", "#!/bin/sh\na\r\nb\n"),
            ("#!/bin/sh\na\r\n", "#!/bin/sh\na\r\n"),
            ("\n", "\n"),
            ("", ""),
        ] {
            assert_eq!(*with_unix_lines(&text.as_bytes().into()), *expected.as_bytes());
        }
    }

    #[test]
    fn a_boothook_begins_after_its_header() {
        let of = |text: &str| String::from_utf8(script_of_boothook(text.as_bytes()).to_vec()).unwrap();
        assert_eq!(of("\n#cloud-boothook\n\n#!/bin/sh\nx\n"), "#!/bin/sh\nx\n");
        assert_eq!(of("#cloud-boothook #!/bin/sh\nx"), "#!/bin/sh\nx");
        assert_eq!(of("#!/bin/sh\n"), "#!/bin/sh\n");
        assert_eq!(of("#cloud-boothook"), "");
    }
}
