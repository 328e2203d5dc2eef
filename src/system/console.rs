//! Text on the machine's console and in the system's log.

use super::{ModuleContext, Screen};

/// Prints `text` on the system's console only, because no log may contain it. In a root that is not the
/// running system nothing is printed. Returns false if there is no console.
pub fn print(context: &ModuleContext, text: &str) -> bool {
    !context.root.runs_commands() || context.outside.show(Screen::Console, text)
}

/// Adds the lines of `text` to the system's log, if there is one. In a root that is not the running system nothing is
/// logged.
pub fn to_system_log(context: &ModuleContext, text: &str) {
    if context.root.runs_commands() && !context.outside.show(Screen::SystemLog, text) {
        log::info!("the system's log does not take what is shown on the console");
    }
}
