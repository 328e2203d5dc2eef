//! Where systemd keeps the machine's credentials, and their size limit.

/// The credentials that PID 1 received from outside (systemd(1), "System credentials").
pub const SYSTEM: &str = "/run/credentials/@system";
/// The largest credential that systemd accepts, in bytes (CREDENTIAL_SIZE_MAX).
pub const MAX: u64 = 1 << 20;
