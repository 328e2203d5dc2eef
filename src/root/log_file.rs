//! Logs that programs of the running system write directly.

use super::layout::folder_of;
use rustix::fd::OwnedFd;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};

/// Opens the log `path` for a program's output: to append, or emptied. A missing one is created with `mode`, and its folder with 0755.
/// An empty log is given to `group`, even one that an earlier run created but could not give away before a
/// power cut.
///
/// # Errors
/// It cannot be opened or created.
pub fn open_log(path: &str, mode: u32, group: Option<u32>, append: bool) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.create(true).mode(mode).append(append).write(true).truncate(!append);
    let file = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o755).create(folder_of(path))?;
            options.open(path)?
        }
        opened => opened?,
    };
    if group.is_some() && file.metadata()?.len() == 0 {
        fchown(&file, None, group)?;
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn makes_a_logs_missing_folder() {
        let dir = TempDir::new("open-log");
        let path = dir.0.join("var/log/output.log");
        for (append, expected) in [(true, "line\n"), (true, "line\nline\n"), (false, "line\n")] {
            let log = open_log(path.to_str().unwrap(), 0o640, None, append).unwrap();
            fs::File::from(log).write_all(b"line\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.0.join("var/log"))), (0o640, 0o755));
        assert!(open_log("/proc/no-such-folder/log", 0o640, None, true).is_err());
    }
}
