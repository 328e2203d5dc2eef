//! Where systemd has the machine's credentials, for those who read some and those who must not replace one.

/// The credentials that PID 1 has been given from outside (systemd(1), "System credentials").
pub const SYSTEM: &str = "/run/credentials/@system";
/// The largest credential that systemd takes, in bytes (CREDENTIAL_SIZE_MAX).
pub const MAX: u64 = 1 << 20;
