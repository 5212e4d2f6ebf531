//! [`Hints`]: what was probably meant by a name that is not there, for a person at a terminal.
//!
//! A server that says "not found" is asked for the directories above: either one of them is missing, or the last has a name that
//! is close to the one that was written. Programs get no hints, because they cost requests.

use std::time::Duration;

use client::{Client, Error, FileSystem, ListWith, Url};

use crate::printer::err;

/// Names that are looked for after one command.
const NAMES_MAX: usize = 3;
/// Directories above a name that are looked at.
const DEPTH_MAX: usize = 32;
/// Time for all hints of a command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Names that were not found.
#[derive(Default, Debug)]
pub(crate) struct Hints(Vec<Url>);

impl Hints {
    /// Takes note of an error, if it says that something is not there.
    pub(crate) fn note(&mut self, error: &Error) {
        if self.0.len() < NAMES_MAX
            && error.is_not_found()
            && let Ok(url) = Url::parse(&error.failure().target)
            && url.path.starts_with('/')
            && !client::copy::has_wildcard(&url.path)
        {
            self.0.push(url);
        }
    }

    /// Tells a person at a terminal what may have been meant.
    pub(crate) async fn tell(self, client: &Client) {
        if self.0.is_empty() || !err().is_terminal() {
            return;
        }
        let look = async {
            for url in &self.0 {
                if let Some(hint) = of(&client.file_system(url), url).await {
                    err().line(format_args!("scalla: {hint}"));
                }
            }
        };
        tokio::time::timeout(PATIENCE, look).await.ok();
    }
}

/// The first directory on the way that is missing, and the nearest name beside it.
async fn of(files: &FileSystem, url: &Url) -> Option<String> {
    let parts: Vec<&str> = url.path.split('/').filter(|part| !part.is_empty()).collect();
    let above = |depth: usize| format!("/{}", parts.get(..depth).unwrap_or_default().join("/"));
    let mut depth = parts.len().checked_sub(1)?;
    if depth > DEPTH_MAX {
        return None;
    }
    while depth > 0 && files.find(&above(depth)).await.ok()?.is_none() {
        depth -= 1;
    }
    let missing = above(depth + 1);
    let name = parts.get(depth)?;
    let listed = files.list_everywhere(&above(depth), &ListWith::default()).await.ok();
    let names: Vec<String> = listed
        .map(|merged| merged.entries.iter().map(|entry| entry.name.to_string()).collect())
        .unwrap_or_default();
    if names.iter().any(|known| known == name) {
        return None;
    }
    let near = base::nearest(name, names.iter().map(String::as_str));
    let near = near.map(|near| format!("{}/{near}", above(depth).trim_end_matches('/')));
    let is_last = depth + 1 == parts.len();
    match (is_last, near) {
        (true, None) => None,
        (true, Some(near)) => Some(format!("is it {near}?")),
        (false, None) => Some(format!("the directory {missing} is missing")),
        (false, Some(near)) => Some(format!("the directory {missing} is missing; is it {near}?")),
    }
}
