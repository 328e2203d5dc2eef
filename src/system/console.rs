//! Text on the machine's console.

use super::{Context, Screen};

/// Prints `text` on the system's console, and nowhere else: for what no log may hold. In a root that is not the running
/// system nothing is printed. False where there is no console to print on.
pub fn print(context: &Context, text: &str) -> bool {
    !context.root.runs_commands() || context.outside.show(Screen::Console, text)
}
