//! Facts about the machine, read only: kernel command line, DMI, NICs, distribution.
