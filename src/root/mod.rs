//! The only door to the disk that is being provisioned.
