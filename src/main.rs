//! The program: the command line is in [`prepivot::cli`], which selects a verb by argv and argv[0].

#[cfg(feature = "no-backtrace")]
use no_backtrace as _;

/// musl's allocator returns a page to the kernel as soon as it is empty and then maps it again, which is costly for
/// many small values. With dlmalloc a second `apply` takes a fifth less CPU time.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    prepivot::cli::main(std::env::args_os())
}
