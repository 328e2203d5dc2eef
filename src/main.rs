//! argv and argv[0] to a command.

fn main() -> std::process::ExitCode {
    prepivot::cli::main(std::env::args_os())
}
