//! One entry of `disk_setup`.

use super::{flag, reread, wait_for};
use crate::base::error::{Context as _, Error, Result};
use crate::document::{Map, Value, wrong};
use crate::drive::block::{self, Block, BlockKind};
use crate::drive::devices::Places;
use crate::root::Command;
use crate::system::ModuleContext;
use crate::system::partitions::{self, Geometry, Partition, PartitionKind, PartitionTable, TableFormat, Wanted, guid};

/// The type of a partition that names none.
const LINUX: &str = "8300";

/// One partition of a layout.
struct Part<'a> {
    percent: f64,
    kind: Option<String>,
    value: &'a Value,
}

/// Partitions a disk as its definition says, unless it has that layout already, or data that must not be overwritten.
pub(super) fn apply(cx: &mut ModuleContext, places: &Places, path: &str, definition: &Map) -> Result<()> {
    let format = match definition.get("table_type").map(|t| t.text().unwrap_or_default()).as_deref() {
        None | Some("mbr") => TableFormat::Mbr,
        Some("gpt") => TableFormat::Gpt,
        Some(_) => return Err(Error::new("table_type: expected mbr or gpt")),
    };
    let disk = wait_for(cx, places, path)?;
    let layout = definition.get("layout").unwrap_or(&Value::Null);
    let parts = match layout {
        Value::String(word) if word.eq_ignore_ascii_case("remove") => Vec::new(),
        Value::Bool(true) => vec![Part { percent: 100.0, kind: None, value: layout }],
        Value::List(list) if !list.is_empty() => list.iter().map(part).collect::<Result<_>>()?,
        Value::List(_) | Value::Bool(false) | Value::Null => return Ok(()),
        other => return Err(wrong("layout", "true, remove, or a list of percentages", other)),
    };
    let BlockKind::Disk { sector } = disk.kind else {
        return Err(Error::new(format!("{} is not a disk", disk.node)));
    };
    if parts.is_empty() {
        return remove(cx, places, &disk);
    }
    let geometry = Geometry::new(disk.size, sector)?;
    let file = cx.root.open_device(&disk.node)?;
    let old = partitions::read(&file, geometry);
    if let Ok(Some(table)) = &old
        && is_there(&table.partitions(), layout, &parts)
    {
        log::info!("disk_setup: {} has the layout already", disk.node);
        return Ok(());
    }
    let overwrite = flag(definition, "overwrite");
    let is_used = !matches!(old, Ok(None | Some(_)))
        || matches!(&old, Ok(Some(table)) if !table.partitions().is_empty())
        || !block::partitions(places, &disk.name).is_empty()
        || block::superblock(places, &disk).is_some();
    if is_used && !overwrite {
        log::info!("disk_setup: {} holds something already, and overwrite is not true", disk.node);
        return Ok(());
    }
    make(cx, &disk, geometry, format, &parts, old.ok().flatten().as_ref(), overwrite)
}

fn part(value: &Value) -> Result<Part<'_>> {
    let expected = || wrong("layout", "percentages, or pairs of a percentage and a type", value);
    let (percent, kind) = match value {
        Value::List(pair) => match pair.as_slice() {
            [percent, kind] => (percent, Some(kind.text().ok_or_else(expected)?)),
            _ => return Err(expected()),
        },
        percent => (percent, None),
    };
    let percent: f64 = percent.text().and_then(|t| t.trim().parse().ok()).ok_or_else(expected)?;
    if (0.0..=100.0).contains(&percent) { Ok(Part { percent, kind, value }) } else { Err(expected()) }
}

/// Whether the partitions are as many as the layout has, and of the types that it names. One or more are what `true` asks for.
fn is_there(found: &[Partition], layout: &Value, parts: &[Part]) -> bool {
    let same = |(part, found): (&Part, &Partition)| part.kind.as_deref().is_none_or(|kind| found.kind.is_named(kind));
    match layout {
        Value::Bool(_) => !found.is_empty(),
        _ => found.len() == parts.len() && parts.iter().zip(found).all(same),
    }
}

fn make(
    cx: &mut ModuleContext,
    disk: &Block,
    geometry: Geometry,
    format: TableFormat,
    parts: &[Part],
    old: Option<&PartitionTable>,
    overwrite: bool,
) -> Result<()> {
    let mut wanted = Vec::new();
    for (number, part) in (1..).zip(parts) {
        let share = geometry.sectors as f64 * (part.percent / 100.0);
        let sectors = (number < parts.len()).then_some(share as u64);
        wanted.push(Wanted { sectors, kind: kind(format, part)? });
    }
    let (made, steps) = partitions::create(old, geometry, format, &wanted, overwrite)?;
    let script: String = made.iter().map(line).collect();
    let label: &[&str] = if format == TableFormat::Gpt { &["--label", "gpt"] } else { &[] };
    let argv = ["sfdisk"].iter().chain(label).copied().chain(["--force", disk.node.as_str()]);
    let shown = Command::new(argv).stdin(script);
    cx.root.write_device(&disk.node, &steps, true, shown)?;
    reread(cx, &disk.node).context(|| "the table is written, but the kernel does not read it")
}

/// The type of a partition, Linux's unless the layout names one. Any other default would be changed again for each instance,
/// because the disk's type is compared with the layout's.
fn kind(format: TableFormat, part: &Part) -> Result<PartitionKind> {
    let name = part.kind.as_deref().unwrap_or(LINUX);
    let (kind, known) = match format {
        TableFormat::Gpt => (guid::guid(name).map(PartitionKind::Guid), "a type that is known, or its GUID,"),
        TableFormat::Mbr => (guid::mbr(name).map(PartitionKind::Code), "a type that is known"),
    };
    kind.ok_or_else(|| wrong("layout", &format!("{known} beside a percentage"), part.value))
}

/// A partition as a line of an sfdisk script.
fn line(partition: &Partition) -> String {
    let kind = match partition.kind {
        PartitionKind::Code(code) => format!("{code:x}"),
        PartitionKind::Guid(bytes) => guid::text(&bytes),
    };
    format!("{},{},{kind}\n", partition.start, partition.end - partition.start)
}

/// Erases the file systems of all partitions, then the table.
fn remove(cx: &mut ModuleContext, places: &Places, disk: &Block) -> Result<()> {
    for partition in block::partitions(places, &disk.name) {
        let wipe = Command::new(["wipefs", "--all", &partition.node]);
        cx.root.run(wipe).context(|| format!("failed to erase what is on {}", partition.node))?;
    }
    let shown = Command::new(["wipefs", "--all", &disk.node]);
    cx.root.write_device(&disk.node, &partitions::erase(disk.size), true, shown)?;
    reread(cx, &disk.node)
}
