//! The program: the command line is in [`prepivot::cli`], which selects a verb by argv and argv[0].

#[cfg(feature = "no-backtrace")]
use no_backtrace as _;

fn main() -> std::process::ExitCode {
    prepivot::cli::main(std::env::args_os())
}
