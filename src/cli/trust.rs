//! `trust`: the trust policy in words, and the values that registers will have.

use super::files;
use super::program::{Program, print};
use super::verb::{self, Entry, Pick, Table, Verb};
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Context, Error, Result};
use crate::base::hex;
use crate::base::problem::Problems;
use crate::document::{Taken, Value};
use crate::machine::Machine;
use crate::root::{Root, Use};
use crate::source;
use crate::stage::close;
use crate::trust::measure::{Measurement, predict};
use crate::trust::seal::{self, Recipient, Register};
use crate::trust::{Policy, documents, policy, sealed, tpm};
use argh::{ArgsInfo, CommandInfo, FromArgs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

/// The verbs of `trust`, in the order of the help.
static VERBS: &[Entry] = &[
    Entry::of::<Show>(),
    Entry::of::<Predict>(),
    Entry::of_part::<Seal>(cfg!(feature = "tools")),
    Entry::of::<Close>(),
    Entry::of::<Open>(),
];

/// the trust policy, what is measured by it, sealing to a machine's TPM, and the metadata service closed to users
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "trust", help_triggers("-h", "--help"))]
pub struct Trust {
    #[argh(subcommand)]
    verb: AnyVerb,
}

/// The verb named on the command line. An alias because argh's macro does not accept a type with `<`.
type AnyVerb = Pick<Verbs>;

struct Verbs;

impl Table for Verbs {
    fn entries() -> &'static [Entry] {
        VERBS
    }

    fn commands() -> &'static [&'static CommandInfo] {
        static COMMANDS: LazyLock<Vec<&CommandInfo>> = LazyLock::new(|| verb::visible(VERBS));
        &COMMANDS
    }
}

impl Verb for Trust {
    fn run(self, program: &Program) -> ExitCode {
        self.verb.run(program)
    }
}

/// show what the trust policy in force needs of each document, and whether the metadata service is closed
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "show",
    help_triggers("-h", "--help"),
    note = "Without --policy it is the policy that this boot's initramfs left in /run/prepivot/trust. Fails if there is none \
            and no service is closed, or it cannot be read."
)]
pub struct Show {
    /// the folder with trust.conf and its keys
    #[argh(option, arg_name = "dir")]
    policy: Option<PathBuf>,
}

impl Verb for Show {
    fn run(self, program: &Program) -> ExitCode {
        let closed = self.policy.is_none().then(running).and_then(|root| close::to_text(&root.ok()?));
        print(closed.as_deref().unwrap_or_default());
        match read(self.policy.as_deref()) {
            None if closed.is_some() => ExitCode::SUCCESS,
            None => program.fail("there is no trust policy"),
            Some(policy) => {
                print(&policy.to_text());
                if policy.problem.is_some() {
                    program.fail("the trust policy cannot be read")
                } else {
                    ExitCode::SUCCESS
                }
            }
        }
    }
}

/// print the values that PCRs and RTMRs will have on a machine with these documents
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "predict",
    help_triggers("-h", "--help"),
    note = "The registers are taken to be zero before. Each document is printed with its SHA-256, which a policy, the kernel \
            command line or a statement may name."
)]
pub struct Predict {
    /// a config drive, an image of one, or a folder with its files
    #[argh(positional, arg_name = "path")]
    seed: PathBuf,
    /// the folder with trust.conf, instead of this boot's policy; without any, user-data alone is measured
    #[argh(option, arg_name = "dir")]
    policy: Option<PathBuf>,
}

impl Verb for Predict {
    fn run(self, program: &Program) -> ExitCode {
        match predicted(&self.seed, self.policy.as_deref()) {
            Ok(text) => {
                print(&text);
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

/// seal a document or a value to the TPM of a machine, which need not have booted yet
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "seal",
    help_triggers("-h", "--help"),
    note = "Needs no TPM here. Prints what is sealed: user-data, a part of it, or the content of a file with the encoding sealed. \
            Each --pcr is a value that the register must have, as trust predict prints it."
)]
pub struct Seal {
    /// the public key of the TPM's endorsement key, or its certificate
    #[argh(option, arg_name = "path")]
    ek: String,
    /// a register and its value: 12=sha256:HEX; may be given more than once
    #[argh(option, arg_name = "pcr=value")]
    pcr: Vec<String>,
    /// what it is for: user-data, the file name of a part or a file, the name of a value; without it, anything
    #[argh(option, arg_name = "name", default = "String::new()")]
    name: String,
    /// print it as a value of a cloud-config: encrypted(...)
    #[argh(switch)]
    value: bool,
    /// what is sealed; without it, standard input
    #[argh(positional, arg_name = "path")]
    file: Option<String>,
}

impl Verb for Seal {
    fn run(self, program: &Program) -> ExitCode {
        match self.sealed() {
            Ok(text) => {
                print(&text);
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

impl Seal {
    fn sealed(&self) -> Result<String> {
        let recipient = Recipient::parse(&files::read(&self.ek)?).context(|| &self.ek)?;
        let registers = self.pcr.iter().map(|text| Register::parse(text)).collect::<Result<_>>()?;
        let plain = files::read(self.file.as_deref().unwrap_or("/dev/stdin"))?;
        let sealed = seal::seal(&plain, &recipient, registers, &self.name)?;
        Ok(if self.value { sealed::value(&sealed, &self.name)? } else { sealed })
    }
}

/// close the metadata service to users again, as this boot has closed it: after a firewall has removed its table
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "close",
    help_triggers("-h", "--help"),
    note = "What is in place stays. Fails if this boot has closed no service (close_metadata_service), or it is still open."
)]
pub struct Close {}

impl Verb for Close {
    fn run(self, program: &Program) -> ExitCode {
        match running().and_then(|root| close::again(&root)) {
            Ok(problems) => {
                problems.iter().for_each(|problem| program.say(problem));
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

/// open the metadata service to users until the next boot
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "open", help_triggers("-h", "--help"), note = "Fails if this boot has closed no service.")]
pub struct Open {}

impl Verb for Open {
    fn run(self, program: &Program) -> ExitCode {
        running().and_then(|root| close::open(&root)).map_or_else(|e| program.fail(e), |()| ExitCode::SUCCESS)
    }
}

/// The running system.
fn running() -> Result<Root> {
    Root::open(Path::new("/"), Use::Tree)
}

/// The policy in a folder, or this boot's.
fn read(folder: Option<&Path>) -> Option<Policy> {
    match folder {
        Some(folder) => Policy::read(&Machine { base: folder.to_owned(), ..Machine::default() }, "."),
        None => Policy::read(&Machine::read(Path::new("/")), policy::COPY),
    }
}

/// The documents of a seed, and the registers after them.
fn predicted(seed: &Path, folder: Option<&Path>) -> Result<String> {
    let policy = match read(folder) {
        None if folder.is_some() => return Err(Error::new("the folder has no trust.conf")),
        Some(Policy { problem: Some(problem), .. }) => return Err(Error::new(problem)),
        other => other,
    };
    let machine = Machine::default();
    // No file of it is read.
    let root = Root::open(Path::new("/"), Use::Plan)?;
    let instance = source::read_seed(&machine, &root, &Value::Null, seed, Taken::keeping(), &Problems::new())?.instance;
    let default = Policy::default();
    let plan = policy.as_ref().map_or(&default.plan, |policy| &policy.plan);
    let (mut out, mut events) = (String::new(), Vec::<Measurement>::new());
    for document in documents(&instance) {
        let measured = match &policy {
            Some(policy) => policy.needs(document.kind, &instance.source).measured,
            None => document.name == "user-data",
        };
        let event = plan.scheme.event(&document).filter(|_| measured);
        let sum = document.bytes.as_deref().map(|bytes| hex::encode(&digest(Algorithm::Sha256, bytes)));
        let sum = sum.map_or("absent".to_owned(), |sum| format!("sha256:{sum}"));
        out += &format!("{:<15} {sum}{}\n", document.name, if event.is_some() { " measured" } else { "" });
        events.extend(event);
    }
    for algorithm in [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512] {
        let value = hex::encode(&predict(&events, algorithm));
        out += &format!("PCR {:<11} {:<6} {value}\n", plan.pcr(), tpm::name(algorithm));
    }
    out += &format!("RTMR[{}]         sha384 {}\n", plan.rtmr, hex::encode(&predict(&events, Algorithm::Sha384)));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn predicts_the_registers_of_a_seed() {
        let (seed, policy) = (TempDir::new("predict"), TempDir::new("predict-policy"));
        seed.write("meta-data", "instance-id: i-1\n");
        seed.write("user-data", "#cloud-config\n");
        let sum = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f";
        let text = predicted(&seed.0, None).unwrap();
        assert!(text.contains(&format!("user-data       sha256:{sum} measured\n")), "{text}");
        assert!(text.contains("vendor-data     absent\n") && text.contains("\nPCR 12          sha1   "), "{text}");
        assert!(predicted(&seed.0, Some(&policy.0)).is_err());
        policy.write("trust.conf", "user-data = measure\nmetadata = use\nscheme = plain\n");
        let text = predicted(&seed.0, Some(&policy.0)).unwrap();
        let pcr = "64068f8f333c515f12568b73abf16d69a032ebf19fe650201a0430fdc2a72bb9";
        let rtmr = "6eadaf8d43153210758f1b89fc2ea6325d28a90999f5e55a1bef54a93ea632defccb4d27c0726baea1520452130c1aa5";
        assert!(text.contains(&format!("PCR 8           sha256 {pcr}\n")), "{text}");
        assert!(text.contains(&format!("RTMR[3]         sha384 {rtmr}\n")), "{text}");
        policy.write("trust.conf", "user-data = x\n");
        assert!(predicted(&seed.0, Some(&policy.0)).unwrap_err().to_string().contains("trust.conf: line 1"));
        assert!(read(Some(&policy.0)).unwrap().to_text().contains("everything is refused"));
    }
}
