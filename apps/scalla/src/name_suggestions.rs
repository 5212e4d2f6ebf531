//! [`NameSuggestions`]: suggestions for names that do not exist, at a terminal.
//!
//! After a "not found" reply, the directories above are listed: either one of them is missing, or
//! the last one has a similar name. Programs get no suggestions, because they cost requests.

use std::time::Duration;

use client::{Client, Error, FileSystem, ListWith, Url};

use crate::printer::err;

/// Maximum number of names per command for which suggestions are made.
const NAMES_MAX: usize = 3;
/// Maximum number of directories above a name that are checked.
const DEPTH_MAX: usize = 32;
/// Timeout for all suggestions of a command.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Names that were not found.
#[derive(Default, Debug)]
pub(crate) struct NameSuggestions(Vec<Url>);

impl NameSuggestions {
    /// Records an error if it reports a missing name.
    pub(crate) fn record(&mut self, error: &Error) {
        if self.0.len() < NAMES_MAX
            && error.is_not_found()
            && let Ok(url) = Url::parse(&error.failure().target)
            && url.path.starts_with('/')
            && !client::copy::has_wildcard(&url.path)
        {
            self.0.push(url);
        }
    }

    /// Prints suggestions at a terminal.
    pub(crate) async fn show(self, client: &Client) {
        if self.0.is_empty() || !err().is_terminal() {
            return;
        }
        let look = async {
            for url in &self.0 {
                if let Some(hint) = suggestion_for(&client.file_system(url), url).await {
                    err().line(format_args!("scalla: {hint}"));
                }
            }
        };
        tokio::time::timeout(TIMEOUT, look).await.ok();
    }
}

/// Returns the first missing directory of a path, and the most similar name beside it.
async fn suggestion_for(files: &FileSystem, url: &Url) -> Option<String> {
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
    let listed = files.list_cluster(&above(depth), &ListWith::default()).await.ok();
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
