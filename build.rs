//! Packs the texts that the program carries: the schemas of documents, each module's documentation, and the distributions that a
//! plan can be made for. They are about a third of their size then.
//!
//! A module's text is a doc comment in its file below src/module that begins with a heading, its name. What follows is the
//! documentation, and a block marked `schema` with the module's keys. One comment may have several names.

use flate2::{Compression, write::GzEncoder};
use std::path::{Path, PathBuf};
use std::{env, fs, io::Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/module");
    println!("cargo::rerun-if-changed=src/schema");
    println!("cargo::rerun-if-changed=src/stage/distributions");
    let (mut schemas, mut all_docs) = (String::new(), String::new());
    for name in ["common", "network"] {
        schemas += &record(name, &fs::read_to_string(format!("src/schema/{name}.txt"))?);
    }
    let mut files = Vec::new();
    rust_files(Path::new("src/module"), &mut files)?;
    files.sort();
    for file in files {
        for comment in doc_comments(&fs::read_to_string(file)?) {
            if let Some((names, text)) = comment.strip_prefix("# ").and_then(|c| c.split_once('\n')) {
                let (docs, schema) = split(text);
                schemas += &record(names, &schema);
                all_docs += &record(names, &docs);
            }
        }
    }
    // Apart, because a boot needs the schemas alone.
    for (name, text) in [("schemas.gz", schemas), ("docs.gz", all_docs), ("distributions.gz", distributions()?)] {
        let path = PathBuf::from(env::var("OUT_DIR")?).join(name);
        let mut packed = GzEncoder::new(fs::File::create(path)?, Compression::best());
        packed.write_all(text.as_bytes())?;
        packed.finish()?;
    }
    Ok(())
}

/// The distributions that a plan can be made for, each with its name.
fn distributions() -> std::io::Result<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir("src/stage/distributions")?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "txt" || e == "list"));
    files.sort();
    let named = |file: &PathBuf| {
        Ok(record(&file.file_stem().unwrap_or_default().to_string_lossy(), &fs::read_to_string(file)?))
    };
    files.iter().map(named).collect()
}

/// A record, as src/schema/texts.rs reads it: names and a text with a unit separator between them, then a record separator (ASCII).
fn record(names: &str, text: &str) -> String {
    format!("{}\x1f{}\n\x1e", names.trim(), text.trim())
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The doc comments of a file, without their marks.
fn doc_comments(text: &str) -> Vec<String> {
    let mut comments = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) {
            Some(line) => {
                let comment = comments.last_mut().expect("it is never empty");
                comment.push_str(line.strip_prefix(' ').unwrap_or(line));
                comment.push('\n');
            }
            None => comments.push(String::new()),
        }
    }
    comments
}

/// The documentation, and what is in blocks marked `schema`.
fn split(text: &str) -> (String, String) {
    let (mut docs, mut schema, mut inside) = (String::new(), String::new(), false);
    for line in text.lines() {
        match line {
            "```schema" => inside = true,
            "```" if inside => inside = false,
            line => {
                let part = if inside { &mut schema } else { &mut docs };
                part.push_str(line);
                part.push('\n');
            }
        }
    }
    (docs, schema)
}
