//! systemd's log of what user space has measured, /run/log/systemd/tpm2-measure.log: JSON records (RFC 7464), which
//! systemd-pcrlock replays. Its sticky bit says that a measurement may be missing.

use super::measure::Measurement;
use super::tpm;
use crate::base::digest::Algorithm;
use crate::base::error::{Context, Error, Result};
use crate::base::hex;
use crate::document::{Map, Value, json};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, open};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{DirBuilder, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const FOLDER: &str = "run/log/systemd";
const FILE: &str = "tpm2-measure.log";
const STICKY: u32 = 0o1000;

/// The log, locked, with the sticky bit until it is closed by [`Log::end`].
pub struct Log(Option<File>);

impl Log {
    /// Opens the log, before anything is measured. One that is broken stays as it is.
    ///
    /// # Errors
    /// It cannot be opened, locked or marked.
    pub fn begin(base: &Path) -> Result<Log> {
        let folder = base.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o755).create(&folder).context(|| format!("failed to make {FOLDER}"))?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let log =
            open(folder.join(FILE), flags, Mode::from_raw_mode(0o600)).context(|| format!("failed to open {FILE}"))?;
        flock(&log, FlockOperation::LockExclusive).context(|| format!("failed to lock {FILE}"))?;
        if fstat(&log).is_ok_and(|stat| stat.st_mode & STICKY != 0) {
            log::warn!("{FILE} is marked as incomplete: nothing is added to it");
            return Ok(Log(None));
        }
        fchmod(&log, Mode::from_raw_mode(STICKY | 0o600)).context(|| format!("failed to mark {FILE}"))?;
        Ok(Log(Some(File::from(log))))
    }

    /// Adds a measurement that was made.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, pcr: u8, event: &Measurement, digests: &[(Algorithm, Vec<u8>)], boot_id: &str) -> Result<()> {
        let Some(log) = &mut self.0 else { return Ok(()) };
        let time = clock_gettime(ClockId::Boottime);
        let record = record(pcr, event, digests, boot_id, time.tv_sec * 1_000_000 + time.tv_nsec / 1000);
        log.seek(SeekFrom::End(0))
            .and_then(|_| log.write_all(format!("\x1e{}\n", json::to_string(&record)).as_bytes()))
            .and_then(|()| log.sync_all())
            .context(|| format!("failed to write {FILE}"))
    }

    /// Every measurement since [`Log::begin`] is in it.
    ///
    /// # Errors
    /// It cannot be marked.
    pub fn end(self) -> Result<()> {
        let Some(log) = self.0 else { return Ok(()) };
        let done = fchmod(&log, Mode::from_raw_mode(0o600)).map_err(std::io::Error::from).and_then(|()| log.sync_all());
        done.map_err(|e| Error::new(format!("failed to mark {FILE}: {e}")))
    }
}

fn record(pcr: u8, event: &Measurement, digests: &[(Algorithm, Vec<u8>)], boot_id: &str, microseconds: i64) -> Value {
    let map = |pairs: Vec<(&str, Value)>| Value::Map(pairs.into_iter().collect::<Map>());
    let digests = digests.iter().map(|(algorithm, digest)| {
        map(vec![("hashAlg", tpm::name(*algorithm).into()), ("digest", hex::encode(digest).into())])
    });
    let mut content = vec![
        ("bootId", boot_id.trim().replace('-', "").into()),
        ("timestamp", microseconds.into()),
        ("eventType", event.kind.into()),
    ];
    if let Some(text) = &event.text {
        content.insert(0, ("string", text.as_str().into()));
    }
    map(vec![
        ("pcr", i64::from(pcr).into()),
        ("digests", digests.collect::<Vec<_>>().into()),
        ("content_type", "systemd".into()),
        ("content", map(content)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::trust::measure::Scheme;
    use crate::trust::{Document, DocumentKind};
    use std::os::unix::fs::PermissionsExt;

    fn event() -> Measurement {
        let bytes = Some(b"#cloud-config\n".as_slice().into());
        Scheme::Systemd.event(&Document { name: "user-data", kind: DocumentKind::UserData, bytes }).unwrap()
    }

    #[test]
    fn a_record_has_systemds_fields() {
        let event = event();
        let digests = [(Algorithm::Sha256, event.digest(Algorithm::Sha256))];
        let text = json::to_string(&record(12, &event, &digests, "0123-4\n", 7));
        let sum = hex::encode(&digests[0].1);
        let word =
            "imds-userdata:88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f:I2Nsb3VkLWNvbmZpZwo=";
        assert_eq!(
            text,
            format!(
                "{{\"pcr\":12,\"digests\":[{{\"hashAlg\":\"sha256\",\"digest\":\"{sum}\"}}],\"content_type\":\"systemd\",\
                 \"content\":{{\"string\":\"{word}\",\"bootId\":\"01234\",\"timestamp\":7,\"eventType\":\"imds-userdata\"}}}}"
            )
        );
    }

    #[test]
    fn a_log_is_marked_until_all_is_written() {
        let dir = TempDir::new("event-log");
        let path = dir.0.join("run/log/systemd/tpm2-measure.log");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let mut log = Log::begin(&dir.0).unwrap();
        assert_eq!(mode(), 0o1600);
        log.add(12, &event(), &[], "b").unwrap();
        log.end().unwrap();
        let mut log = Log::begin(&dir.0).unwrap();
        log.add(12, &event(), &[], "b").unwrap();
        log.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((mode(), text.matches("\x1e{").count(), text.matches("}\n").count()), (0o600, 2, 2));
        // What was cut off leaves the mark, and nothing is added any more.
        drop(Log::begin(&dir.0).unwrap());
        let mut log = Log::begin(&dir.0).unwrap();
        log.add(12, &event(), &[], "b").unwrap();
        log.end().unwrap();
        assert_eq!((mode(), std::fs::read_to_string(&path).unwrap()), (0o1600, text));
    }
}
