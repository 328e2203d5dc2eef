//! NoCloud over the network: the files of a seed folder at a URL (`seedfrom`, `ds=nocloud;s=http://…/`).
//!
//! Follows cloud-init's documentation, "NoCloud", "Source 2: Kernel command line" and "Runtime configuration".

use super::place::{FILES, file_at};
use super::seed::{self, Seed};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::drive::Files;
use crate::link::Uplink;
use crate::link::http::{Client, Redirects, Request};
use crate::source::search::Search;
use crate::source::service::{Job, limits};

/// How often optional files of a seed are tried if the server has trouble.
const OPTIONAL_TRIES: u32 = 5;

/// How a seed at a URL is requested. None if no `seedfrom` has a URL; one that is neither http nor https is
/// also a problem.
pub fn job(search: &mut Search) -> Option<Job> {
    let (seed, from) = seed::remote(search)?;
    if !from.starts_with("http://") && !from.starts_with("https://") {
        search.problem("NoCloud: seedfrom: expected a URL of http or https, or an absolute path".into());
        return None;
    }
    let fetch = move |client: &Client, url: &str| {
        Ok(fetch(client, seed.clone(), url)?.finish("DataSourceNoCloudNet", seed::DEFAULT_ID))
    };
    let urls = move |uplink: &Uplink| if uplink.reaches(&from) { vec![from.clone()] } else { Vec::new() };
    Some(Job {
        replaces_drive: true,
        redirects: Redirects::Any,
        ..Job::new(super::marks::NAME, urls, fetch, limits(search, super::marks::NAME))
    })
}

/// Fetches the seed at `from`: first meta-data, and once that shows that a server answers, the other files in
/// parallel.
///
/// # Errors
/// No response, or no meta-data or user-data. Optional files that fail are problems of the seed.
pub fn fetch(client: &Client, mut seed: Seed, from: &str) -> Result<Seed> {
    let [(meta_data, user_data), others] = [(FILES[0], FILES[1]), (FILES[2], FILES[3])];
    let get = |name: &str, tries: u32| client.document(&Request { tries, ..Request::get(&file_at(from, name)) });
    let missing = |name: &str| Error::new(format!("there is no {name} at {}", plain(from)));
    let mut files = Files::default();
    files.insert(meta_data, get(meta_data, u32::MAX)?.ok_or_else(|| missing(meta_data))?);
    let problems = Problems::new();
    let user_data = std::thread::scope(|scope| {
        let get = &get;
        let threads = [others.0, others.1].map(|name| (name, scope.spawn(move || get(name, OPTIONAL_TRIES))));
        let first = get(user_data, u32::MAX).and_then(|body| body.ok_or_else(|| missing(user_data)));
        for (name, thread) in threads {
            match thread.join() {
                Ok(Ok(Some(body))) => files.insert(name, body),
                Ok(Ok(None)) => {}
                Ok(Err(e)) => problems.warn(format!("{e}; the boot goes on without it")),
                Err(_) => problems.warn(format!("{name}: failed to read it")),
            }
        }
        first
    });
    files.insert(FILES[1], user_data?);
    seed.take_files(&files, plain(from));
    seed.problems.absorb(problems);
    Ok(seed)
}

/// The URL in messages: without query and credentials.
fn plain(from: &str) -> &str {
    let end = from.find(['?', '#']).unwrap_or(from.len());
    let start = from.find('@').filter(|at| from.get(..*at).is_some_and(|b| b.matches('/').count() == 2));
    from.get(start.map_or(0, |at| at + 1)..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_no_secret() {
        assert_eq!(plain("http://user:pw@h/seed/?token=x"), "h/seed/");
        assert_eq!(plain("http://h/a@b/"), "http://h/a@b/");
    }
}
