//! Network configuration: one model, one file per format read, one per renderer written.
