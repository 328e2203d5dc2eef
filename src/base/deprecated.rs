//! What cloud-init 26.2 reports as deprecated while it works, beside the keys and values of its schema: one table.

/// Something that still works, and that a later version of cloud-init will not accept.
pub struct Deprecation {
    /// What it is. `{}` stands for the subject: a user, a name, a value.
    what: &'static str,
    /// The version of cloud-init that deprecated it. It is to be removed five years later.
    since: (u32, u32),
    /// What to use instead. May be empty, and may have `{}`.
    instead: &'static str,
}

const fn old(what: &'static str, since: (u32, u32), instead: &'static str) -> Deprecation {
    Deprecation { what, since, instead }
}

pub const APT_SOURCES: Deprecation = old("Config key 'apt_sources'", (22, 1), "Use 'apt' instead");
pub const APT_KEYS: Deprecation = old("The following config key(s): {}", (22, 1), "");
pub const APT_BOTH: Deprecation = old("Support for combined old and new apt module keys", (22, 1), "");
pub const CA_CERTS: Deprecation = old("Key 'ca-certs'", (22, 1), "Use 'ca_certs' instead.");
pub const REMOVE_DEFAULTS: Deprecation = old("Key 'remove-defaults'", (22, 1), "Use 'remove_defaults' instead.");
pub const FREQUENCY: Deprecation = old("Config specified module {}", (22, 1), "");
pub const GROWPART_MODE: Deprecation = old("Growpart's 'mode' key with value '{}'", (22, 2), "Use 'off' instead.");
pub const RSYSLOG_LIST: Deprecation = old("The rsyslog key with value of type 'list'", (22, 2), "");
pub const SSH_PWAUTH: Deprecation =
    old("Using a string value for the 'ssh_pwauth' key", (22, 2), "Use a boolean value with 'ssh_pwauth'.");
pub const CHPASSWD_TEXT: Deprecation = old("The chpasswd multiline string", (22, 2), "Use string type instead.");
pub const HOSTS_TEMPLATE: Deprecation =
    old("Value 'template' for key 'manage_etc_hosts'", (22, 2), "Use 'true' instead.");
pub const SUDO_FALSE: Deprecation =
    old("The value of 'false' in user {}'s 'sudo' config", (22, 2), "Use 'null' instead.");
pub const USER_TEXT: Deprecation = old("'user' of type string", (22, 2), "Use 'users' list instead.");
pub const USERS_KIND: Deprecation = old("'users' of type <class '{}'>", (22, 2), "Use 'users' as a list.");
pub const CHPASSWD_LIST: Deprecation = old("Config key 'lists'", (22, 3), "Use 'users' instead.");
pub const GROUPS_MAP: Deprecation = old(
    "The user {} has a 'groups' config value of type dict",
    (22, 3),
    "Use a comma-delimited string or array instead: group1,group2.",
);
pub const GATEWAY: Deprecation =
    old("The use of `gateway4` and `gateway6`", (22, 4), "Use a route to `default` in `routes` instead.");
pub const VENDOR_TEXT: Deprecation =
    old("Use of string '{}' for 'vendor_data:enabled' field", (23, 1), "Use boolean value instead.");
pub const CMDLINE_NAME: Deprecation =
    old("Defining the datasource on the command line using ci.ds={} or ci.datasource={}", (23, 2), "Use ds={} instead");
pub const DIGITAL_OCEAN: Deprecation =
    old("DataSourceDigitalOcean", (23, 2), "Deprecated in favour of DataSourceConfigDrive.");
pub const RENAMED: Deprecation =
    old("Module has been renamed from {}. Update any references in /etc/cloud/cloud.cfg", (24, 1), "");
pub const NOCLOUD_NET: Deprecation = old(
    "The 'nocloud-net' datasource name",
    (24, 1),
    "Use 'nocloud' instead: the scheme of seedfrom (http:// or file://) says whether the network is needed.",
);
pub const MODE_INIT: Deprecation = old("`--mode init`", (24, 1), "Use `cloud-init init` instead.");
pub const ENI: Deprecation = old(
    "Eni network configuration in {}",
    (24, 3),
    "Use the network configuration formats of cloud-init or OpenStack.",
);

impl Deprecation {
    /// The report, about this subject.
    pub fn about(&self, subject: &str) -> String {
        let Deprecation { what, since: (year, month), instead } = self;
        let text = format!(
            "{what} is deprecated in {year}.{month} and scheduled to be removed in {}.{month}. {instead}",
            year + 5
        );
        text.trim_end().replace("{}", subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_version_and_removal() {
        assert_eq!(
            SUDO_FALSE.about("ada"),
            "The value of 'false' in user ada's 'sudo' config is deprecated in 22.2 and scheduled to be removed in 27.2. Use 'null' \
             instead."
        );
        let keys = APT_KEYS.about("['apt_proxy']");
        assert_eq!(
            keys,
            "The following config key(s): ['apt_proxy'] is deprecated in 22.1 and scheduled to be removed in 27.1."
        );
    }
}
