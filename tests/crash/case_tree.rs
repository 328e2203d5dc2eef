//! Makes the tree that a case starts from: `case-tree CASE FOLDER`, for tests/crash.

#[path = "../whole_program/tree.rs"]
#[allow(dead_code)]
mod tree;

use std::path::Path;

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(case), Some(folder)) = (words.next(), words.next()) else {
        eprintln!("usage: case-tree CASE FOLDER");
        std::process::exit(2);
    };
    println!("{}", tree::Tree::of_case(Path::new(&case), Path::new(&folder)).path().display());
}
