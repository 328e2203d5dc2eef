//! Home folders: created from the skeleton, owned by their user.

use super::{Defs, User};
use crate::base::error::Result;
use crate::base::report::Report;
use crate::root::{Attr, Kind, Root};

/// The most entries of a skeleton, and its greatest depth.
const MAX_SKELETON: (usize, usize) = (10_000, 32);

/// Creates the home of a new user from /etc/skel, and its mail file if the system uses one. An existing home
/// stays as it is; one that exists only because of `write_files` becomes the user's, and its files stay.
pub(super) fn make(root: &mut Root, user: &User, defs: &Defs, mail: Option<u32>, report: &mut Report) -> Result<()> {
    if !root.exists(&user.home) || root.is_new_dir(&user.home) {
        make_own(root, &user.home, Attr::owned(defs.home_mode(), user.ids))?;
        // Files that exist already take precedence.
        let own = [defs.useradd("SKEL").unwrap_or("/etc/skel"), "/usr/etc/skel"];
        for skeleton in own {
            copy(root, skeleton, user, report)?;
        }
    }
    if defs.useradd("CREATE_MAIL_SPOOL").is_some_and(|v| v.eq_ignore_ascii_case("yes")) {
        let folder = defs.login("MAIL_DIR").unwrap_or("/var/spool/mail").to_owned();
        let path = format!("{folder}/{}", user.name);
        if root.is_dir(&folder) && root.lstat(&path).is_none() {
            let (mode, gid) = mail.map_or((0o600, user.ids.gid), |gid| (0o660, gid));
            root.write(&path, "", Attr { mode, uid: user.ids.uid, gid })?;
        }
    }
    Ok(())
}

/// Creates a folder that belongs to the user. One that other modules created for root in this stage becomes
/// the user's too.
fn make_own(root: &mut Root, path: &str, attr: Attr) -> Result<()> {
    root.mkdir(path, attr)?;
    if root.is_new_dir(path) { root.set_attr(path, attr) } else { Ok(()) }
}

fn copy(root: &mut Root, skeleton: &str, user: &User, report: &mut Report) -> Result<()> {
    let mut left = vec![(String::new(), 0)];
    let mut count = 0;
    while let Some((folder, depth)) = left.pop() {
        for name in root.list(&format!("{skeleton}{folder}")) {
            count += 1;
            if count > MAX_SKELETON.0 || depth > MAX_SKELETON.1 {
                report.warn(format_args!("{skeleton} is too large: the home of {} has only a part of it", user.name));
                return Ok(());
            }
            let (from, to) = (format!("{skeleton}{folder}/{name}"), format!("{}{folder}/{name}", user.home));
            let Some(stat) = root.lstat(&from) else { continue };
            let attr = Attr::owned(stat.attr.mode, user.ids);
            if stat.kind != Kind::Dir && root.lstat(&to).is_some() {
                continue;
            }
            match stat.kind {
                Kind::Dir => {
                    make_own(root, &to, attr)?;
                    left.push((format!("{folder}/{name}"), depth + 1));
                }
                Kind::File => {
                    if let Some(content) = root.read(&from)? {
                        root.write_new(&to, content, attr)?;
                    }
                }
                Kind::Symlink => {
                    if let Some(target) = root.read_link(&from) {
                        root.symlink(&to, &target)?;
                    }
                }
                Kind::Other => {}
            }
        }
    }
    Ok(())
}
