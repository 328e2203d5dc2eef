//! Devices on top of others: LVM, LUKS and MD.

use super::{Outcome, has_room, skipped};
use crate::base::base64;
use crate::base::error::{Context as _, Error, Result};
use crate::document::{Value, json};
use crate::drive::block::{self, Block, BlockKind};
use crate::drive::devices::Places;
use crate::root::{Attr, Command, installed};
use crate::system::ModuleContext;

/// How many layers of devices are followed.
pub(super) const MAX_DEPTH: usize = 8;
/// cloud-init's key file for an encrypted root.
const KEY_FILE: &str = "/cc_growpart_keydata";
/// The record of an unfinished change to a logical volume, which the next boot completes: the extents that
/// were free before, and the volume.
const BEGUN: &str = "/var/lib/cloud/data/growpart-lvm";
/// MD versions with metadata at the start of a device. Metadata at its end is lost if the device grows but
/// the array does not.
const MD_METADATA: [&str; 2] = ["1.1", "1.2"];
const MD_LEVELS: [&str; 4] = ["raid1", "raid4", "raid5", "raid6"];
/// The most bytes of a device that MD leaves unused.
const MD_UNUSED: u64 = 256 << 20;

/// Grows the devices below a device, then the device itself.
pub(super) fn grow(cx: &mut ModuleContext, places: &Places, block: &Block, depth: usize) -> Result<Outcome> {
    if depth >= MAX_DEPTH {
        return skipped("too many devices lie on each other");
    }
    match &block.kind {
        BlockKind::Mapping { name, uuid } => {
            let [below] = block.below.as_slice() else {
                return skipped(format!("{} lies on {} devices, expected one", block.node, block.below.len()));
            };
            let Some(below) = block::named(places, below) else { return skipped(format!("{below} is not there")) };
            let path = format!("/dev/mapper/{name}");
            if uuid.starts_with("LVM-") {
                grow_volume(cx, places, &path, &below, depth)
            } else if uuid.starts_with("CRYPT-") {
                grow_encrypted(cx, places, &path, &below, depth)
            } else {
                skipped(format!("{path} is neither LVM's nor LUKS's"))
            }
        }
        BlockKind::Raid { level, metadata, used } => grow_array(cx, places, block, level, metadata, *used, depth),
        _ => skipped(format!("{} lies on nothing", block.node)),
    }
}

/// Grows a logical volume by what its volume group gains.
fn grow_volume(cx: &mut ModuleContext, places: &Places, volume: &str, below: &Block, depth: usize) -> Result<Outcome> {
    if installed::which(cx.root, "lvm").is_none() && installed::which(cx.root, "lvextend").is_none() {
        return skipped(format!("{volume} is LVM's, and there is no lvextend"));
    }
    let begun = cx.root.text(BEGUN);
    let begun = begun.trim_end().split_once(' ').filter(|(_, name)| *name == volume);
    let before = match begun.and_then(|(free, _)| free.parse().ok()) {
        Some(free) => free,
        None if !has_room(cx, places, below, depth)? => return Ok(Outcome::Full),
        None => {
            let free = free_extents(cx, volume)?;
            cx.root.write(BEGUN, format!("{free} {volume}\n"), Attr::root(0o600))?;
            commit(cx)?;
            free
        }
    };
    super::grow(cx, places, below, depth + 1)?;
    cx.root.run(Command::new(["pvresize", &below.node]))?;
    let gained = free_extents(cx, volume)?.saturating_sub(before);
    if gained > 0 {
        cx.root.run(Command::new(["lvextend", "--extents", &format!("+{gained}"), volume]))?;
    }
    cx.root.remove(BEGUN)?;
    commit(cx)?;
    Ok(if gained > 0 { Outcome::Grown } else { Outcome::Full })
}

/// Syncs the record; fails if it does not reach the disk.
fn commit(cx: &mut ModuleContext) -> Result<()> {
    cx.root.commit().into_iter().next().map_or(Ok(()), Err)
}

/// The number of free extents in the volume's group.
fn free_extents(cx: &mut ModuleContext, volume: &str) -> Result<u64> {
    let argv = ["lvs", "--noheadings", "--options", "vg_free_count", volume];
    let output = cx.root.output(Command::new(argv))?;
    if cx.root.is_plan() {
        return Ok(0);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let free = text.trim().parse().ok().filter(|_| output.status == 0);
    free.ok_or_else(|| Error::new(format!("lvs does not say how much of {volume}'s volume group is free")))
}

/// Grows an encrypted device, if cloud-init's key file opens it.
fn grow_encrypted(
    cx: &mut ModuleContext,
    places: &Places,
    mapping: &str,
    below: &Block,
    depth: usize,
) -> Result<Outcome> {
    if installed::which(cx.root, "cryptsetup").is_none() {
        return skipped(format!("{mapping} is encrypted, and there is no cryptsetup"));
    }
    if block::superblock(places, below).is_none_or(|s| s.kind != "crypto_LUKS") {
        return skipped(format!("{} holds no LUKS", below.node));
    }
    super::grow(cx, places, below, depth + 1)?;
    let Some(text) = cx.root.read_small(KEY_FILE)? else {
        return skipped(format!("{} may have grown, but without {KEY_FILE} {mapping} is as it was", below.node));
    };
    let (key, slot) = key(&text).context(|| format!("failed to read {KEY_FILE}"))?;
    let secret = String::from_utf8_lossy(&key).into_owned();
    let resize = Command::new(["cryptsetup", "--key-file", "-", "resize", mapping]).stdin(key).secret(secret);
    let resized = cx.root.run(resize);
    // The key exists only for this and is useless afterwards: it is removed even after a failure.
    let kill = ["cryptsetup", "luksKillSlot", "--batch-mode", &below.node, &slot];
    if let Err(e) = cx.root.run(Command::new(kill)) {
        cx.report.warn(format_args!("growpart: failed to remove the key's slot {slot} of {}: {e}", below.node));
    }
    if let Err(e) = cx.root.remove(KEY_FILE) {
        cx.report.warn(format_args!("growpart: {e}"));
    }
    resized.map(|()| Outcome::Grown)
}

/// Parses the key and its slot.
fn key(text: &[u8]) -> Result<(Vec<u8>, String)> {
    let expected = || Error::new("expected {\"key\": base64, \"slot\": number}");
    // Without the parser's message, which may quote the key.
    let data = json::parse(KEY_FILE, text).map_err(|_| expected())?;
    let key = data.get("key").and_then(Value::as_str).and_then(|k| base64::decode(k.as_bytes()));
    let slot = data.get("slot").and_then(Value::text).filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
    key.zip(slot).filter(|(_, slot)| !slot.is_empty()).ok_or_else(expected)
}

/// Grows an array to use what its devices gain.
fn grow_array(
    cx: &mut ModuleContext,
    places: &Places,
    array: &Block,
    level: &str,
    metadata: &str,
    used: u64,
    depth: usize,
) -> Result<Outcome> {
    if !MD_LEVELS.contains(&level) || !MD_METADATA.contains(&metadata) {
        return skipped(format!("{} is a {level} with metadata {metadata}", array.node));
    }
    if installed::which(cx.root, "mdadm").is_none() {
        return skipped(format!("{} is MD's, and there is no mdadm", array.node));
    }
    let mut grown = false;
    for name in &array.below {
        if let Some(below) = block::named(places, name) {
            grown |= super::grow(cx, places, &below, depth + 1)? == Outcome::Grown;
        }
    }
    let smallest = array.below.iter().filter_map(|name| block::named(places, name)).map(|b| b.size).min();
    // The second case is what an interrupted run leaves.
    if !grown && smallest.unwrap_or(0) < used.saturating_add(MD_UNUSED) {
        return Ok(Outcome::Full);
    }
    cx.root.run(Command::new(["mdadm", "--grow", &array.node, "--size=max"]))?;
    Ok(Outcome::Grown)
}
