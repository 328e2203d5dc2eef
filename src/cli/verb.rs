//! Verbs: the trait that a verb's file implements, and its entry in the table of verbs.
//!
//! argh parses the command line and writes the help. Its subcommands are normally an enum, which would need a variant
//! and a match arm for each verb. [`Pick`] gives argh a table of [`Entry`]s instead, so that a verb is one file and one
//! line.

use super::program::{Program, USAGE};
use argh::{ArgsInfo, CommandInfo, CommandInfoWithArgs, EarlyExit, FromArgs, SubCommand, SubCommandInfo, SubCommands};
use std::marker::PhantomData;
use std::process::ExitCode;

/// A verb. Its name, arguments, help and exit codes are in argh's attributes.
///
/// In the attributes, an option's or positional's `arg_name` says what completions offer: `a|b|c` these words, `path` files,
/// `dir` folders, anything else nothing.
pub trait Verb: SubCommand + ArgsInfo {
    /// Names of the program (`argv[0]`) that run this verb alone.
    const PROGRAMS: &'static [&'static str] = &[];
    /// Left out of help, completions and manual.
    const HIDDEN: bool = false;
    /// The exit code for a wrong command line.
    const USAGE: u8 = USAGE;

    /// Runs the verb, and returns the exit code.
    fn run(self, program: &Program) -> ExitCode;
}

/// A parsed command line, ready to run.
type Run = Box<dyn FnOnce(&Program) -> ExitCode>;

/// One line of a table of verbs.
pub struct Entry {
    command: &'static CommandInfo,
    /// See [`Verb::PROGRAMS`].
    pub programs: &'static [&'static str],
    /// See [`Verb::HIDDEN`].
    pub hidden: bool,
    /// See [`Verb::USAGE`].
    pub usage: u8,
    /// The arguments, help and exit codes.
    pub info: fn() -> CommandInfoWithArgs,
    parse: fn(&[&str], &[&str]) -> Result<Run, EarlyExit>,
}

impl Entry {
    /// The entry of the verb `V`.
    pub const fn of<V: Verb + 'static>() -> Entry {
        Entry {
            command: V::COMMAND,
            programs: V::PROGRAMS,
            hidden: V::HIDDEN,
            usage: V::USAGE,
            info: V::get_args_info,
            parse: |name, words| {
                let verb = V::from_args(name, words)?;
                Ok(Box::new(move |program| verb.run(program)))
            },
        }
    }

    /// The entry, in this build, of a verb that a build may leave out. Without it (`included` is false) the verb is known and
    /// fails: nothing refers to its code, so that the linker drops it.
    pub const fn of_part<V: Verb + 'static>(included: bool) -> Entry {
        if included {
            return Entry::of::<V>();
        }
        Entry {
            command: const {
                &CommandInfo { name: V::COMMAND.name, short: V::COMMAND.short, description: "left out of this build" }
            },
            programs: V::PROGRAMS,
            hidden: V::HIDDEN,
            usage: V::USAGE,
            info: CommandInfoWithArgs::default,
            parse: left_out,
        }
    }

    /// The verb's name on the command line.
    pub fn name(&self) -> &'static str {
        self.command.name
    }

    /// Parses `words`, the command line after the verb. `name` is what help calls the program, one word for each level.
    ///
    /// # Errors
    /// The text to print instead: help, or what is wrong.
    pub fn parse(&self, name: &[&str], words: &[&str]) -> Result<Picked, EarlyExit> {
        (self.parse)(name, words).map(Picked)
    }
}

/// The function of a verb that this build leaves out: reports that and fails, whatever the arguments.
fn left_out(name: &[&str], _: &[&str]) -> Result<Run, EarlyExit> {
    let verb = name.last().copied().unwrap_or_default().to_owned();
    Ok(Box::new(move |program| program.fail(format_args!("this build of prepivot leaves {verb} out"))))
}

/// A verb with its arguments.
pub struct Picked(Run);

impl Picked {
    /// Runs the verb.
    pub fn run(self, program: &Program) -> ExitCode {
        self.0(program)
    }
}

/// A table of verbs: the program's own, or the tools of a verb that has several.
pub trait Table {
    /// All entries, in the order of the help.
    fn entries() -> &'static [Entry];

    /// The entries that help shows. A `static` of its own in each table, because argh borrows the list.
    fn commands() -> &'static [&'static CommandInfo];
}

/// The entries of a table that help shows, in argh's form: for [`Table::commands`].
pub fn visible(entries: &'static [Entry]) -> Vec<&'static CommandInfo> {
    entries.iter().filter(|entry| !entry.hidden).map(|entry| entry.command).collect()
}

/// The verb that a command line names, out of a table.
pub struct Pick<T> {
    picked: Picked,
    table: PhantomData<T>,
}

impl<T> Pick<T> {
    /// Runs the verb.
    pub fn run(self, program: &Program) -> ExitCode {
        self.picked.run(program)
    }
}

impl<T: Table> FromArgs for Pick<T> {
    /// The last of `name` is the verb; argh asks only for those of [`Table::commands`].
    fn from_args(name: &[&str], words: &[&str]) -> Result<Self, EarlyExit> {
        let entry = name.last().and_then(|name| T::entries().iter().find(|entry| entry.name() == *name));
        let entry = entry.ok_or_else(|| EarlyExit::from("expected a command".to_owned()))?;
        Ok(Pick { picked: entry.parse(name, words)?, table: PhantomData })
    }
}

impl<T: Table> SubCommands for Pick<T> {
    const COMMANDS: &'static [&'static CommandInfo] = &[];

    fn dynamic_commands() -> &'static [&'static CommandInfo] {
        T::commands()
    }
}

impl<T: Table> ArgsInfo for Pick<T> {
    fn get_args_info() -> CommandInfoWithArgs {
        let commands = T::entries().iter().filter(|entry| !entry.hidden);
        let commands = commands.map(|entry| SubCommandInfo { name: entry.name(), command: (entry.info)() });
        CommandInfoWithArgs { commands: commands.collect(), ..Default::default() }
    }
}
