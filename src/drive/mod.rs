//! A config drive's files: label probe, mount, and readers for a kernel without drivers.
