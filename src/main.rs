//! argv and argv[0] to a command.

#[cfg(feature = "no-backtrace")]
use no_backtrace as _;

fn main() -> std::process::ExitCode {
    prepivot::cli::main(std::env::args_os())
}
