//! Text for whoever sits at the console of the machine.

use super::Context;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

const CONSOLE: &str = "/dev/console";

/// Prints `text` on the system's console, and nowhere else: for what no log may hold. In a root that is not the running
/// system nothing is printed. False where there is no console to print on.
pub fn print(context: &Context, text: &str) -> bool {
    if !context.root.is_live() {
        return true;
    }
    let flags = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let console = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(CONSOLE);
    console.and_then(|mut c| c.write_all(text.as_bytes())).is_ok()
}
