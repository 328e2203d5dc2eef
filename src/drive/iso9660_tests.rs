//! Real images made by genisoimage, and hand-made changes to them.

use super::*;
use crate::drive::files::Files;
use crate::drive::images::{self, Input, NOVA, config_drive, hard_drive, pattern, same, soon};
use crate::drive::label::START;
use crate::drive::tree;
use std::fs;

fn read(image: &[u8]) -> Result<Files> {
    let start = image.get(..START).unwrap_or(image);
    tree::copy(&Iso::open(image, start)?, soon())
}

/// An image with these options, read.
fn made(input: &Input, options: &[&str]) -> Option<Files> {
    let (_dir, image) = images::iso(input, options)?;
    Some(read(&fs::read(image).unwrap()).unwrap())
}

#[test]
fn rock_ridge_and_joliet_return_the_original_files() {
    for input in [config_drive(), hard_drive()] {
        let joliet = ["-J", "-joliet-long", "-V", "config-2"];
        for options in [NOVA, &["-r"], &joliet, &["-R", "-iso-level", "3"]] {
            let Some(files) = made(&input, options) else { return };
            println!("{options:?}");
            let mut input = input.clone();
            // Joliet has no semicolons, as what follows one is a version.
            if options == joliet && input.contains_key("names/a+b=[c],d;e") {
                let contents = input.remove("names/a+b=[c],d;e").unwrap();
                input.insert("names/a+b=[c],d_e".into(), contents);
            }
            same(&files, &input);
        }
    }
}

#[test]
fn finds_plain_names_by_their_original_names() {
    let options = ["-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-V", "config-2"];
    let Some(files) = made(&config_drive(), &options) else { return };
    // A plain name has no hyphen; the tool writes an underscore.
    same(&files, &config_drive().into_iter().map(|(path, contents)| (path.replace('-', "_"), contents)).collect());
    let Some(files) = made(&Input::from([("DIR/USERDATA.TXT".into(), b"x".to_vec())]), &[]) else { return };
    assert_eq!(files.iter().collect::<Vec<_>>(), [("dir/userdata.txt", &b"x"[..])]);
    assert_eq!(files.get("DIR/UserData.txt").unwrap(), b"x");
}

#[test]
fn plain_and_joliet_names_lose_their_version() {
    assert_eq!(plain_name(b"META_DAT.JSO;1"), "meta_dat.jso");
    assert_eq!(plain_name(b"USERDATA.;1"), "userdata");
    assert_eq!(plain_name(b"A;B/C.;2"), "a.b.c..2");
    let joliet = |name: &str| joliet_name(&name.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>());
    assert_eq!(joliet("Größe.txt;1"), "Größe.txt");
    assert_eq!(joliet("dots..;1"), "dots");
    assert_eq!(joliet("😀;1"), "😀");
}

#[test]
fn symlinks_and_special_files() {
    let (dir, folder, image) = images::source("links", &config_drive());
    let target = format!("2018-08-27/{}meta_data.json", "./".repeat(150));
    for (link, target) in
        [("openstack/newest", "2018-08-27"), ("out", "/etc/passwd"), ("up", "../../x"), ("openstack/long", &target)]
    {
        std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
    }
    images::tool("mkfifo", &[folder.join("pipe").to_str().unwrap()]).unwrap();
    let Some(_) = images::tool("genisoimage", &["-quiet", "-R", "-o", &image, folder.to_str().unwrap()]) else {
        return;
    };
    let files = read(&fs::read(&image).unwrap()).unwrap();
    let contents = files.get("openstack/2018-08-27/meta_data.json");
    assert!(contents.is_some());
    assert_eq!(files.get("openstack/newest/meta_data.json"), contents);
    assert_eq!(files.get("openstack/long"), contents, "a target over several SL fields and continuation areas");
    assert_eq!((files.get("out"), files.get("up")), (None, None));
    assert_eq!(files.notes(), ["left out /pipe: a special file"]);
    drop(dir);
}

#[test]
fn finds_relocated_directories_at_their_original_place() {
    let deep = "1/2/3/4/5/6/7/8/9/10/11/file";
    let input = Input::from([(deep.to_string(), b"deep".to_vec()), ("top".into(), b"top".to_vec())]);
    let Some(files) = made(&input, &["-r", "-D"]) else { return };
    assert_eq!(files.get(deep).unwrap(), b"deep", "as it is");
    let Some(files) = made(&input, &["-r"]) else { return };
    assert_eq!(files.get(deep).unwrap(), b"deep", "moved to rr_moved");
    assert_eq!(files.get("top").unwrap(), b"top");
    assert_eq!(files.iter().count(), 2, "{:?}", files.iter().map(|f| f.0).collect::<Vec<_>>());
}

/// Where the record of the file `name` starts in an image.
fn record(image: &[u8], name: &[u8]) -> usize {
    let found = image.windows(name.len()).position(|window| window == name).expect("the name is in the image");
    found - 33
}

#[test]
fn a_file_in_several_extents_is_one_file() {
    // Two neighbouring files with names of the same length, whose records are made into one file's.
    let input =
        Input::from([("AAAA".to_string(), pattern(4096)), ("AAAB".into(), pattern(3000)), ("Z".into(), vec![7])]);
    let Some((_dir, image)) = images::iso(&input, &[]) else { return };
    let mut image = fs::read(image).unwrap();
    let (first, second) = (record(&image, b"AAAA.;1"), record(&image, b"AAAB.;1"));
    image[first + 25] |= MULTI_EXTENT;
    image[second + 33 + 3] = b'A';
    let files = read(&image).unwrap();
    assert_eq!(files.get("aaaa").unwrap(), [pattern(4096), pattern(3000)].concat());
    assert_eq!((files.get("z").unwrap(), files.list("")), (&[7][..], vec!["aaaa", "z"]));

    // An associated file is another's resource fork, with the same name; an interleaved one can't be read.
    image[first + 25] = ASSOCIATED;
    image[second + 26] = 1;
    let files = read(&image).unwrap();
    assert_eq!((files.list(""), files.notes().len()), (vec!["z"], 1));
}

#[test]
fn a_directory_that_holds_itself_ends() {
    let Some((_dir, image)) = images::iso(&Input::from([("DIRX/F".to_string(), vec![1])]), &[]) else { return };
    let mut image = fs::read(image).unwrap();
    let (root, below) =
        (Record::parse(&image[32768 + 156..]).unwrap().extent.block as u32, record(&image, b"\x04DIRX"));
    image[below + 1 + 2..below + 1 + 6].copy_from_slice(&root.to_le_bytes());
    let files = read(&image).unwrap();
    assert!(files.notes().iter().any(|note| note.contains("deeper than")), "{:?}", files.notes());
}

#[test]
fn survives_any_damage() {
    for options in [NOVA, &["-J"], &[]] {
        let Some((_dir, image)) = images::iso(&config_drive(), options) else { return };
        let image = fs::read(image).unwrap();
        let mut good = 0;
        crate::base::testing::mutations(&image, 3000, |bytes| {
            good += usize::from(images::is_read_or_refused(read(bytes)))
        });
        assert!(good > 1000, "most damage leaves something to read: {good}");
    }
}

#[test]
fn says_what_is_no_volume() {
    assert!(read(&[0; 65536]).unwrap_err().to_string().contains("no ISO 9660 volume descriptor"));
}
