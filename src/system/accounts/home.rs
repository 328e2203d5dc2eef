//! Home folders: created from the skeleton, owned by their user.

use super::{Defs, User};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::root::{Attr, Content, FileKind, Root};
use std::cell::OnceCell;

/// The most entries of a skeleton, and its greatest depth.
const MAX_SKELETON: (usize, usize) = (10_000, 32);

/// The skeletons of homes, the administrator's first. They are read for the first home; all homes share the contents.
#[derive(Debug, Default)]
pub(super) struct Skeletons(OnceCell<[Skeleton; 2]>);

/// The entries of a skeleton, each folder before its contents.
#[derive(Debug)]
struct Skeleton {
    path: String,
    /// The path in the skeleton, from its slash on; the mode; and the content.
    parts: Vec<(String, u32, Part)>,
    /// Whether nothing was left out.
    is_whole: bool,
}

#[derive(Debug)]
enum Part {
    Dir,
    File(Result<Content>),
    Symlink(String),
}

/// Creates the home of a new user from /etc/skel, and its mail file if the system uses one. An existing home
/// stays as it is; one that exists only because of `write_files` becomes the user's, and its files stay.
pub(super) fn make(
    root: &mut Root,
    user: &User,
    defs: &Defs,
    skeletons: &Skeletons,
    mail: Option<u32>,
    report: &Problems,
) -> Result<()> {
    if !root.exists(&user.home) || root.is_new_dir(&user.home) {
        make_own(root, &user.home, Attr::owned(defs.home_mode(), user.ids))?;
        let folders = [defs.useradd("SKEL").unwrap_or("/etc/skel"), "/usr/etc/skel"];
        let skeletons = skeletons.0.get_or_init(|| folders.map(|folder| Skeleton::read(root, folder)));
        for skeleton in skeletons {
            skeleton.copy(root, user, report)?;
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

impl Skeleton {
    /// Reads the folder at `path`. A missing one is empty.
    fn read(root: &Root, path: &str) -> Skeleton {
        let mut skeleton = Skeleton { path: path.to_owned(), parts: Vec::new(), is_whole: true };
        let mut left = vec![(String::new(), 0)];
        let mut count = 0;
        while let Some((folder, depth)) = left.pop() {
            for name in root.list(&format!("{path}{folder}")) {
                count += 1;
                if count > MAX_SKELETON.0 || depth > MAX_SKELETON.1 {
                    skeleton.is_whole = false;
                    return skeleton;
                }
                let below = format!("{folder}/{name}");
                let from = format!("{path}{below}");
                let Some(stat) = root.lstat(&from) else { continue };
                let part = match stat.kind {
                    FileKind::Dir => {
                        left.push((below.clone(), depth + 1));
                        Some(Part::Dir)
                    }
                    FileKind::File => {
                        root.read(&from).map(|bytes| bytes.map(Content::from)).transpose().map(Part::File)
                    }
                    FileKind::Symlink => root.read_link(&from).map(Part::Symlink),
                    FileKind::Other => None,
                };
                skeleton.parts.extend(part.map(|part| (below, stat.attr.mode, part)));
            }
        }
        skeleton
    }

    /// Copies it to the user's home. Files that exist already take precedence.
    fn copy(&self, root: &mut Root, user: &User, report: &Problems) -> Result<()> {
        for (below, mode, part) in &self.parts {
            let to = format!("{}{below}", user.home);
            let attr = Attr::owned(*mode, user.ids);
            match part {
                Part::Dir => make_own(root, &to, attr)?,
                _ if root.lstat(&to).is_some() => {}
                Part::File(content) => root.write_new(&to, content.clone()?, attr)?,
                Part::Symlink(target) => root.symlink(&to, target)?,
            }
        }
        if !self.is_whole {
            report.warn(format_args!("{} is too large: the home of {} has only a part of it", self.path, user.name));
        }
        Ok(())
    }
}
