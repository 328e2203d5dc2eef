//! Bytes to parts to merged cloud-config.
