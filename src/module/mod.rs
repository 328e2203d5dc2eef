//! One file per cloud-config module, and the table of them.
