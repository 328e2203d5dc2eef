//! Images of real filesystems for the tests, made by the tools that everyone makes them with.

use super::files::Files;
use super::tree::{MAX_FILE, MAX_TOTAL};
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::testing::TempDir;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The input tree of files: path → contents.
pub type Input = BTreeMap<String, Vec<u8>>;

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Runs a tool for a minute at most. None, with the reason printed, if it is not there; a failure of the tool is the
/// test's.
pub fn tool(name: &str, args: &[&str]) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command.args(["60", name]).args(args).env("PATH", path).env("MTOOLS_SKIP_CHECK", "1").env("LC_ALL", "C.UTF-8");
    let output = command.output().expect("coreutils are there");
    if output.status.code() == Some(127) {
        crate::base::testing::skip(String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    assert!(output.status.success(), "{name} {args:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a damaged image was read: then no path leads out of its tree, and no bound is passed. An error is one line.
pub fn is_read_or_refused(result: Result<Files>) -> bool {
    let files = match result {
        Ok(files) => files,
        Err(e) => {
            let text = e.to_string();
            assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
            return false;
        }
    };
    let mut total = 0;
    for (path, content) in files.iter() {
        let plain = |name: &str| !["", ".", ".."].contains(&name) && !name.contains('\0');
        assert!(path.split('/').all(plain), "{path:?}");
        assert!(content.len() as u64 <= MAX_FILE, "{path}: {} bytes", content.len());
        total += content.len() as u64;
    }
    assert!(total <= MAX_TOTAL, "{total} bytes");
    true
}

/// Bytes that differ from place to place, so that a block out of order is seen.
pub fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i / 251 + i * 7) as u8).collect()
}

/// A config drive as nova writes it, small.
pub fn config_drive() -> Input {
    let mut input = Input::new();
    for version in ["2012-08-10", "2018-08-27", "latest"] {
        input.insert(format!("openstack/{version}/meta_data.json"), br#"{"uuid": "83679162"}"#.to_vec());
        input.insert(format!("openstack/{version}/network_data.json"), b"{}".to_vec());
    }
    input.insert("openstack/latest/user_data".into(), b"#cloud-config\nhostname: x\n".to_vec());
    input.insert("openstack/content/0000".into(), pattern(5000));
    input.insert("ec2/latest/meta-data.json".into(), b"{}".to_vec());
    input
}

/// The same, with what is hard: long, foreign and odd names, sizes around blocks, large directories, depth.
pub fn hard_drive() -> Input {
    let mut input = config_drive();
    for size in [0, 1, 511, 512, 513, 2047, 2048, 2049, 4096, 300_000] {
        input.insert(format!("sizes/of {size} bytes"), pattern(size));
    }
    for i in 0..150 {
        input.insert(format!("many/a file with a long name, number {i}.txt"), i.to_string().into_bytes());
    }
    for name in ["two..dots", ".hidden", "UPPER", "MiXed.Case.tar.gz", "a+b=[c],d;e", "grüße.txt", "ключ.pem", "日本語"]
    {
        input.insert(format!("names/{name}"), name.as_bytes().to_vec());
    }
    input.insert("a/b/c/d/e/f/deep".into(), b"deep".to_vec());
    input
}

/// Writes a tree below a folder.
pub fn write(input: &Input, folder: &Path) {
    for (path, contents) in input {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

/// A folder for an image, and the tree written beside it.
pub fn source(name: &str, input: &Input) -> (TempDir, PathBuf, String) {
    let dir = TempDir::new(name);
    let folder = dir.0.join("tree");
    fs::create_dir_all(&folder).unwrap();
    write(input, &folder);
    let image = dir.0.join("image");
    let image = image.to_str().unwrap().to_string();
    (dir, folder, image)
}

/// An ISO 9660 image with genisoimage's `options`.
pub fn iso(input: &Input, options: &[&str]) -> Option<(TempDir, String)> {
    let (dir, folder, image) = source("iso", input);
    let mut args = vec!["-quiet", "-input-charset", "utf-8", "-o", &image];
    args.extend(options);
    args.push(folder.to_str().unwrap());
    tool("genisoimage", &args)?;
    Some((dir, image))
}

/// Nova's options for genisoimage.
pub const NOVA: &[&str] = &["-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-J", "-r", "-V", "config-2"];

/// A FAT image of `megabytes` with mkfs.vfat's `options`, filled by mtools.
pub fn fat(input: &Input, megabytes: u64, options: &[&str]) -> Option<(TempDir, String)> {
    let (dir, folder, image) = source("fat", input);
    fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    let mut args = options.to_vec();
    args.push(&image);
    tool("mkfs.vfat", &args)?;
    if !input.is_empty() {
        let tops = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path().to_str().unwrap().to_string());
        let tops: Vec<String> = tops.collect();
        let mut args = vec!["-s", "-Q", "-i", &image];
        args.extend(tops.iter().map(String::as_str));
        args.push("::/");
        tool("mcopy", &args)?;
    }
    Some((dir, image))
}

/// An ext image of `megabytes` with mke2fs's `options`, filled by it.
pub fn ext(input: &Input, megabytes: u64, options: &[&str]) -> Option<(TempDir, String)> {
    let (dir, folder, image) = source("ext", input);
    fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    let mut args = vec!["-q", "-F", "-d", folder.to_str().unwrap()];
    args.extend(options);
    args.push(&image);
    tool("mke2fs", &args)?;
    Some((dir, image))
}

/// A loop device for an image, read-only. None, with the reason printed, if that is not allowed.
pub fn attach(image: &str) -> Option<String> {
    let script = "losetup -r -f --show \"$0\" || exit 127";
    tool("sh", &["-c", script, image]).map(|node| node.trim().to_string())
}

/// Takes a loop device away again.
pub fn detach(node: &str) {
    tool("losetup", &["-d", node]);
}

/// Asserts that the files are those that were put in, and that nothing was left out.
pub fn same(files: &Files, input: &Input) {
    assert_eq!(files.notes(), [] as [String; 0]);
    let paths: Vec<&str> = files.iter().map(|(path, _)| path).collect();
    assert_eq!(paths, input.keys().collect::<Vec<_>>());
    for (path, contents) in files.iter() {
        assert!(contents == input[path], "the contents of {path} differ");
    }
}
