//! One file per datasource, and the table of them.
