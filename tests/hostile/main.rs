//! Hostile and random input: every document is answered in bounded time, without a panic, and changes only what it may.

mod accounts;
mod fuzzed;
mod modules;
mod network;
mod userdata;
