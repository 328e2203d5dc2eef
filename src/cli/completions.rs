//! `completions`: completion scripts for bash, zsh and fish, generated from the table of verbs.
//!
//! Each script follows the words before the cursor to the command that they name, and offers its subcommands,
//! options and values. A command is identified by the words that lead to it, each preceded by a blank: `
//! devel render`; the program itself by an empty string.

use super::program::{Program, print};
use super::verb::Verb;
use argh::{ArgsInfo, CommandInfoWithArgs, FlagInfo, FlagInfoKind, FromArgs};
use std::process::ExitCode;

/// print the completions of a shell
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "completions", help_triggers("-h", "--help"))]
pub struct Completions {
    /// the shell
    #[argh(positional, arg_name = "bash|zsh|fish", from_str_fn(shell))]
    shell: Script,
}

/// Generates the script from the commands and from the names of the program, each with its command.
type Script = fn(&[Command], &[(&str, String)]) -> String;

fn shell(name: &str) -> Result<Script, String> {
    match name {
        "bash" => Ok(bash),
        "zsh" => Ok(zsh),
        "fish" => Ok(fish),
        _ => Err("expected bash, zsh or fish".into()),
    }
}

impl Verb for Completions {
    const HIDDEN: bool = true;

    fn run(self, program: &Program) -> ExitCode {
        let mut commands = Vec::new();
        collect((program.command)(), "", &mut commands);
        let aliases = (program.aliases)().into_iter().map(|(name, verb)| (name, format!(" {verb}")));
        let names: Vec<(&str, String)> =
            ["prepivot", "cloud-init"].map(|name| (name, String::new())).into_iter().chain(aliases).collect();
        print(&(self.shell)(&commands, &names));
        ExitCode::SUCCESS
    }
}

/// A command, and the words that lead to it.
struct Command {
    path: String,
    info: CommandInfoWithArgs,
}

fn collect(info: CommandInfoWithArgs, path: &str, commands: &mut Vec<Command>) {
    let below = info.commands.clone();
    commands.push(Command { path: path.to_owned(), info });
    for sub in below {
        collect(sub.command, &format!("{path} {}", sub.name), commands);
    }
}

/// The completion of a value.
enum Value {
    /// One of these words, separated by blanks.
    Words(String),
    File,
    Folder,
    Other,
}

impl Value {
    fn of(arg_name: &str) -> Value {
        match arg_name {
            "path" => Value::File,
            "dir" => Value::Folder,
            words if words.contains('|') => Value::Words(words.replace('|', " ")),
            _ => Value::Other,
        }
    }

    /// The value of an option; None for a switch.
    fn of_flag(flag: &FlagInfo<'_>) -> Option<Value> {
        match flag.kind {
            FlagInfoKind::Switch => None,
            FlagInfoKind::Option { arg_name } => Some(Value::of(arg_name)),
        }
    }
}

/// The spellings of an option: `-l` and `--long`.
fn spellings(flag: &FlagInfo<'_>) -> Vec<String> {
    flag.short.map(|c| format!("-{c}")).into_iter().chain([flag.long.to_owned()]).collect()
}

/// `'a'|'b'`, a pattern for a shell's `case`.
fn pattern<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join("|")
}

/// Escapes `'` for single-quoted text in bash and zsh.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// The `case` lines in bash and zsh for the program's names that run one command.
fn aliases(names: &[(&str, String)]) -> String {
    let lines = names.iter().filter(|(_, path)| !path.is_empty());
    lines.map(|(name, path)| format!("        {name}) at='{path}';;\n")).collect()
}

fn bash(commands: &[Command], names: &[(&str, String)]) -> String {
    let (mut values, mut words) = (String::new(), String::new());
    for Command { path, info } in commands {
        let mut offered: Vec<String> = info.commands.iter().map(|c| c.name.to_owned()).collect();
        for flag in info.flags {
            offered.extend(spellings(flag));
            if let Some(value) = Value::of_flag(flag) {
                let spelled: Vec<String> = spellings(flag).iter().map(|s| format!("{path} {s}")).collect();
                let value = if let Value::Words(words) = value { format!(" words='{words}'") } else { String::new() };
                values += &format!("        {}){value};;\n", pattern(spelled.iter().map(String::as_str)));
            }
        }
        offered.extend(info.positionals.iter().filter_map(|p| match Value::of(p.name) {
            Value::Words(words) => Some(words),
            _ => None,
        }));
        words += &format!("            '{path}') words='{}';;\n", offered.join(" "));
    }
    let paths = pattern(commands.iter().skip(1).map(|c| c.path.as_str()));
    let names_only: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    format!(
        "# bash completion, made by `prepivot completions bash`\n\
         _prepivot() {{\n    local at= cur=$2 prev=$3 words= word\n    case ${{1##*/}} in\n{}    esac\n    \
         for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n        case \"$at $word\" in\n            {paths}) at+=\" $word\";;\n        \
         esac\n    done\n    \
         # bash takes --option=value for three words\n    [[ $cur == = ]] && cur=\n    \
         [[ $prev == = ]] && prev=${{COMP_WORDS[COMP_CWORD-2]}}\n    case \"$at $prev\" in\n{values}        *) case $at in\n{words}        \
         esac;;\n    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}}\ncomplete -o default -F _prepivot {}\n",
        aliases(names),
        names_only.join(" "),
    )
}

fn zsh(commands: &[Command], names: &[(&str, String)]) -> String {
    // `_arguments` ends a description at a bracket, and a message at a colon.
    let described = |text: &str| quoted(&text.replace('\\', "\\\\").replace(']', "\\]").replace(':', "\\:"));
    let action = |value: &Value| match value {
        Value::Words(words) => format!("({words})"),
        Value::File => "_files".to_owned(),
        Value::Folder => "_files -/".to_owned(),
        Value::Other => " ".to_owned(),
    };
    let mut specs = String::new();
    for Command { path, info } in commands {
        specs += &format!("        '{path}') _arguments -s");
        for flag in info.flags {
            let text = described(flag.description);
            specs.extend(spellings(flag).iter().map(|spelling| match Value::of_flag(flag) {
                None => format!(" \\\n            '{spelling}[{text}]'"),
                Some(value) => {
                    let sign = if spelling.starts_with("--") { '=' } else { '+' };
                    format!(" \\\n            '*{spelling}{sign}[{text}]: :{}'", action(&value))
                }
            }));
        }
        if !info.commands.is_empty() {
            let text = |text: &str| described(text).replace('"', "\\\"");
            let list: Vec<String> =
                info.commands.iter().map(|c| format!("{}\\:\"{}\"", c.name, text(c.command.description))).collect();
            specs += &format!(" \\\n            '1: :(({}))'", list.join(" "));
        }
        if let Some(last) = info.positionals.first() {
            specs += &format!(" \\\n            '*: :{}'", action(&Value::of(last.name)));
        }
        specs += ";;\n";
    }
    let names_only: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let paths = pattern(commands.iter().skip(1).map(|c| c.path.as_str()));
    format!(
        "#compdef {}\n# zsh completion, made by `prepivot completions zsh`\n\
         _prepivot() {{\n    local at= n=1 i\n    case ${{words[1]:t}} in\n{}    esac\n    for ((i = 2; i < CURRENT; i++)); do\n        \
         case \"$at ${{words[i]}}\" in\n            {paths}) at+=\" ${{words[i]}}\"; n=$i;;\n        esac\n    done\n    \
         shift $((n - 1)) words\n    ((CURRENT -= n - 1))\n    case $at in\n{specs}    esac\n}}\n_prepivot \"$@\"\n",
        names_only.join(" "),
        aliases(names),
    )
}

fn fish(commands: &[Command], names: &[(&str, String)]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let paths: Vec<String> = commands.iter().skip(1).map(|c| format!("'{}'", c.path)).collect();
    let mut out = format!(
        "# fish completion, made by `prepivot completions fish`\n\
         function __prepivot_at\n    set -l at ''\n    for word in (commandline -opc)[2..]\n        \
         contains -- \"$at $word\" {}\n        and set at \"$at $word\"\n    end\n    test \"$at\" = \"$argv[1]\"\nend\n",
        paths.join(" ")
    );
    for (name, path) in names.iter().skip(1) {
        out += &format!("complete -c {name} -w 'prepivot{path}'\n");
    }
    for Command { path, info } in commands {
        let start = format!("complete -c prepivot -n '__prepivot_at \"{path}\"'");
        let positional = info.positionals.first().map(|p| Value::of(p.name));
        match &positional {
            Some(Value::Words(words)) => out += &format!("{start} -f -a '{words}'\n"),
            Some(Value::File | Value::Folder) => {}
            _ => out += &format!("{start} -f\n"),
        }
        for sub in &info.commands {
            out += &format!("{start} -a {} -d '{}'\n", sub.name, quoted(sub.command.description));
        }
        for flag in info.flags {
            let short = flag.short.map(|c| format!(" -s {c}")).unwrap_or_default();
            let long = flag.long.trim_start_matches('-');
            let value = match Value::of_flag(flag) {
                None => String::new(),
                Some(Value::Words(words)) => format!(" -x -a '{words}'"),
                Some(Value::File) => " -rF".to_owned(),
                Some(Value::Folder) => " -x -a '(__fish_complete_directories)'".to_owned(),
                Some(Value::Other) => " -x".to_owned(),
            };
            out += &format!("{start}{short} -l {long}{value} -d '{}'\n", quoted(flag.description));
        }
    }
    out
}
