//! Text on the machine's console.

use super::{Context, Screen};

/// Prints `text` on the system's console only, because no log may contain it. In a root that is not the
/// running system nothing is printed. Returns false if there is no console.
pub fn print(context: &Context, text: &str) -> bool {
    !context.root.runs_commands() || context.outside.show(Screen::Console, text)
}
