//! One entry of `fs_setup`.

use super::{flag, path, wait_for};
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, wrong};
use crate::drive::block::{self, Block, BlockKind};
use crate::drive::devices::Places;
use crate::drive::label::Superblock;
use crate::root::{Command, installed};
use crate::system::device_names::{partition_of, placed};
use crate::system::{ModuleContext, shell};

/// How the programs differ that make file systems: the beginning of the type, the option before the label, and the one with
/// which a whole disk, or what holds something else, is taken.
const OPTIONS: [(&str, &str, &str); 10] = [
    ("ext", "-L", "-F"),
    ("xfs", "-L", "-f"),
    ("btrfs", "-L", "-f"),
    ("swap", "-L", "-f"),
    ("reiserfs", "-l", "-f"),
    ("f2fs", "-l", "-f"),
    ("bcachefs", "-L", "-f"),
    ("ntfs", "-L", "-F"),
    ("vfat", "-n", "-I"),
    ("fat", "-n", "-I"),
];

/// A definition's values.
struct Wanted {
    filesystem: String,
    label: Option<String>,
    overwrite: bool,
    replace: Option<String>,
}

/// Makes the file system of a definition, unless the device has it already.
pub(super) fn make(cx: &mut ModuleContext, places: &Places, definition: &Map) -> Result<()> {
    let text = |key: &str| definition.get(key).filter(|v| !v.is_null()).and_then(Value::text);
    let device = text("device").ok_or_else(|| Error::new("device: expected the path of a device, or a name of one"))?;
    let given = path(cx, places, &device);
    let (name, dot) = if cx.root.exists(&given) { (device.as_str(), None) } else { placed(&device) };
    if dot.is_some() && definition.contains_key("partition") {
        cx.report.warn(format_args!("fs_setup: {device} names a partition: the key partition is ignored"));
    }
    let partition = dot.map(str::to_owned).or_else(|| match definition.get("partition") {
        None | Some(Value::Null) => Some("any".into()),
        Some(value) => value.text(),
    });
    let partition = partition.unwrap_or_default().to_ascii_lowercase();
    let wanted = Wanted {
        filesystem: text("filesystem").unwrap_or_default().to_ascii_lowercase(),
        label: text("label").filter(|l| !l.is_empty()),
        overwrite: flag(definition, "overwrite"),
        replace: text("replace_fs"),
    };
    let path = path(cx, places, name);
    let device = wait_for(cx, places, &path)?;
    let is_whole = matches!(partition.as_str(), "" | "none");
    let block = match partition.as_str() {
        "" | "none" => device,
        "auto" | "any" => match free(places, &device, &wanted, partition == "any")? {
            Some(block) => block,
            None => return Ok(()),
        },
        number if number.bytes().all(|b| b.is_ascii_digit()) => {
            let node = partition_of(&device.node, number);
            let block = block::at(places, &node).filter(|b| matches!(b.kind, BlockKind::Partition { .. }));
            block.ok_or_else(|| Error::new(format!("there is no partition {node}")))?
        }
        _ => return Err(Error::new("partition: expected a number, auto, any or none")),
    };
    let node = &block.node;
    let held = block::superblock(places, &block);
    let is_used = held.is_some();
    if let Some(found) = held {
        let is_it = found.kind == wanted.filesystem && found.label == wanted.label;
        let is_replaced = !is_whole && wanted.replace.as_deref() == Some(found.kind);
        if is_it && !wanted.overwrite {
            log::info!("fs_setup: {node} has this file system already");
            return Ok(());
        }
        if !wanted.overwrite && !is_replaced {
            let label = found.label.map(|l| format!(" with the label {l}")).unwrap_or_default();
            return Err(Error::new(format!(
                "{node} holds {}{label}: it is kept, as overwrite is not true",
                found.kind
            )));
        }
    } else if is_whole && has_partitions(places, &block) && !wanted.overwrite {
        return Err(Error::new(format!("{node} has partitions: it is kept, as overwrite is not true")));
    }
    let command = command(cx, definition, &wanted, &block, is_used)?;
    cx.root.run(command)?;
    cx.outside.devices_changed();
    Ok(())
}

fn has_partitions(places: &Places, block: &Block) -> bool {
    matches!(block.kind, BlockKind::Disk { .. }) && !block::partitions(places, &block.name).is_empty()
}

/// The first of a device and its partitions that can take the file system. None if one already has it, or another
/// with the same label.
fn free(places: &Places, block: &Block, wanted: &Wanted, any_label: bool) -> Result<Option<Block>> {
    let mut candidates = vec![block.clone()];
    if let BlockKind::Disk { .. } = block.kind {
        candidates.extend(block::partitions(places, &block.name));
    }
    let is_partitioned = candidates.len() > 1;
    let mut disk_is_free = true;
    for candidate in candidates {
        let is_disk = matches!(candidate.kind, BlockKind::Disk { .. });
        // A partitioned disk begins with its table.
        let found = block::superblock(places, &candidate).filter(|_| !(is_disk && is_partitioned));
        let kind = found.as_ref().map(|f| f.kind);
        if any_label && kind.is_some() && kind == wanted.replace.as_deref() {
            return Ok(Some(candidate));
        }
        if is_same(found.as_ref(), wanted, any_label) {
            log::info!("fs_setup: {} has this file system already", candidate.node);
            return Ok(None);
        }
        if !is_disk && found.is_none() {
            return Ok(Some(candidate));
        }
        disk_is_free &= is_disk && found.is_none();
    }
    if disk_is_free {
        return Ok(Some(block.clone()));
    }
    Err(Error::new(format!("{} has no partition that is empty or holds {}", block.node, wanted.filesystem)))
}

fn is_same(found: Option<&Superblock>, wanted: &Wanted, any_label: bool) -> bool {
    found.is_some_and(|f| f.kind == wanted.filesystem && (any_label || f.label == wanted.label))
}

/// The command that makes it; if the device `is_used`, over its content.
fn command(cx: &mut ModuleContext, definition: &Map, wanted: &Wanted, block: &Block, is_used: bool) -> Result<Command> {
    let node = &block.node;
    let is_disk = matches!(block.kind, BlockKind::Disk { .. });
    if let Some(cmd) = definition.get("cmd").filter(|v| v.is_true() || v.as_str().is_some() || v.as_list().is_some()) {
        for key in ["overwrite", "extra_opts"] {
            let is_given =
                |v: &Value| v.is_true() || v.as_list().is_some_and(|l| !l.is_empty()) || v.as_str().is_some();
            if definition.get(key).is_some_and(is_given) {
                cx.report.warn(format_args!("fs_setup: {key} is ignored where there is a cmd"));
            }
        }
        let label = definition.get("label").and_then(Value::text).unwrap_or_else(|| "None".into());
        let fill = |word: &str| {
            let filled = word.replace("%(label)s", &label).replace("%(filesystem)s", &wanted.filesystem);
            filled.replace("%(device)s", node)
        };
        return match cmd {
            Value::String(line) => Ok(Command::new(["sh".to_owned(), "-c".into(), fill(line)])),
            list => Ok(Command::new(shell::words("cmd", list)?.iter().map(|w| fill(w)))),
        };
    }
    let kind = &wanted.filesystem;
    if kind.is_empty() {
        return Err(Error::new("filesystem: expected a type such as ext4"));
    }
    if kind.contains('/') {
        return Err(Error::new("filesystem: expected a type such as ext4, not a path"));
    }
    let program =
        installed::which(cx.root, &format!("mkfs.{kind}")).or_else(|| installed::which(cx.root, &format!("mk{kind}")));
    let program = program.ok_or_else(|| Error::new(format!("there is no program mkfs.{kind} or mk{kind}")))?;
    let options = OPTIONS.iter().find(|(prefix, ..)| kind.starts_with(prefix));
    let mut argv = vec![program];
    if let Some(label) = &wanted.label {
        argv.extend([options.map_or("-L", |(_, label, _)| label).to_owned(), label.clone()]);
    }
    if wanted.overwrite || is_disk || is_used {
        match options {
            Some((_, _, force)) => argv.push((*force).to_owned()),
            None => log::info!("fs_setup: mkfs.{kind} has no option that is known to force it"),
        }
    }
    match definition.get("extra_opts") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => argv.extend(text.split_whitespace().map(str::to_owned)),
        Some(list @ Value::List(_)) => argv.extend(shell::words("extra_opts", list).unwrap_or_default()),
        Some(other) => return Err(wrong("extra_opts", "text or a list of words", other)),
    }
    argv.push(node.clone());
    Ok(Command::new(argv))
}
