//! URLs of files.

/// The path that an absolute path or a `file:` URL names (cloud-init 26.2, url_helper.py, `read_file_or_url`). None for other
/// URLs.
pub fn file_path(url: &str) -> Option<&str> {
    if url.starts_with('/') {
        return Some(url);
    }
    let (_, rest) = url.split_once(':').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("file"))?;
    match rest.strip_prefix("//") {
        // A host, which may be before the path, is ignored.
        Some(rest) => rest.find('/').and_then(|at| rest.get(at..)).or(Some(rest)),
        None => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_files() {
        for url in ["/a/b", "file:///a/b", "FILE:///a/b", "file:/a/b", "file://localhost/a/b"] {
            assert_eq!(file_path(url), Some("/a/b"), "{url}");
        }
        assert_eq!((file_path("file:a"), file_path("file://a"), file_path("file:")), (Some("a"), Some("a"), Some("")));
        for url in ["http://h/a", "a/b", "files:///a/b", ""] {
            assert_eq!(file_path(url), None, "{url}");
        }
    }
}
