//! [`Context`]: the client, and what URLs and paths in arguments stand for.

use std::fmt;

use client::copy::has_wildcard;
use client::{Client, FileSystem, Scheme, Url};

use super::console::Console;
use super::walk::Walk;

/// What a command runs with.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Its connections.
    pub(crate) client: Client,
    /// The current folder, for paths that name no server: its URL with an absolute path. Without it only URLs are taken.
    pub(crate) base: Option<Url>,
}

/// Arguments make no sense; nothing was done.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Context {
    /// What an argument names. Relative paths begin at the current folder; the path of a bare `root://host` is `/`.
    pub(crate) fn url(&self, text: &str) -> Result<Url, Usage> {
        let is_url = text.split_once("://").is_some_and(|(name, _)| !name.contains(['/', '?']));
        if is_url {
            let mut url = Url::parse(text).map_err(|error| Usage(format!("{text}: {error}")))?;
            if matches!(url.scheme, Scheme::File | Scheme::Stdio) {
                return Err(local(text));
            }
            if url.path.is_empty() {
                url.path = "/".to_owned();
            }
            return Ok(url);
        }
        let base = self.base.as_ref().ok_or_else(|| local(text))?;
        if text.is_empty() {
            return Err(Usage("a path is empty".to_owned()));
        }
        if text.starts_with('/') {
            return Ok(base.with_path(text));
        }
        let (path, cgi) = text.split_once('?').map_or((text, None), |(path, cgi)| (path, Some(cgi)));
        let joined = joined(&base.path, path);
        Ok(base.with_path(&cgi.map_or(joined.clone(), |cgi| format!("{joined}?{cgi}"))))
    }

    /// What arguments name; without any, the current folder.
    pub(crate) fn urls_or_base(&self, texts: &[String]) -> Result<Vec<String>, Usage> {
        match (texts.is_empty(), &self.base) {
            (false, _) => Ok(texts.to_vec()),
            (true, Some(base)) => Ok(vec![base.path.clone()]),
            (true, None) => Err(Usage("name what: root://HOST[:PORT]//PATH".to_owned())),
        }
    }

    /// What arguments name, wildcards resolved. Those that stand for nothing are told as failures.
    pub(crate) async fn expand(&self, console: &Console, texts: &[String]) -> Result<Vec<Url>, Usage> {
        let urls: Result<Vec<Url>, Usage> = texts.iter().map(|text| self.url(text)).collect();
        let mut found = Vec::new();
        for url in urls? {
            if !has_wildcard(&url.path) {
                found.push(url);
                continue;
            }
            match self.files(&url).matching(&url.path).await {
                Ok(paths) => found.extend(paths.into_iter().map(|path| at(&url, path))),
                Err(error) => console.fail(&url, &error),
            }
        }
        Ok(found)
    }

    /// The file system in which a URL is.
    pub(crate) fn files(&self, url: &Url) -> FileSystem {
        self.client.file_system(url)
    }

    /// A walk through a folder. One that cannot begin is told as a failure.
    pub(super) async fn walk(&self, console: &Console, url: &Url) -> Option<Walk> {
        match Walk::begin(&self.files(url), url).await {
            Ok(walk) => Some(walk),
            Err(error) => {
                console.fail(url, &error);
                None
            }
        }
    }

    /// How a place is called in output: by its URL, or by its path where it is on the server that we are at.
    pub(crate) fn name(&self, url: &Url) -> String {
        match &self.base {
            Some(base) if base.authority() == url.authority() => url.path.clone(),
            _ => url.to_string(),
        }
    }
}

fn local(text: &str) -> Usage {
    Usage(format!(
        "`{text}` names no server: write root://HOST[:PORT]//PATH; for files of this machine use the system's own commands"
    ))
}

/// The same server and cgi, another path, which is taken as it is.
pub(super) fn at(url: &Url, path: String) -> Url {
    Url { path, ..url.clone() }
}

/// A path below a folder.
pub(super) fn below(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

/// A relative path from an absolute folder on: `.` and `..` are resolved, and `..` at the root is the root.
fn joined(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last component of a path.
pub(super) fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Whether a path is the root, however it is written.
pub(super) fn is_root(path: &str) -> bool {
    joined("/", path) == "/"
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Settings;

    fn context(base: Option<&str>) -> Context {
        let base = base.map(|base| Url::parse(base).unwrap());
        Context { client: Client::with(Settings::default(), "test"), base }
    }

    #[test]
    fn arguments_are_urls_or_paths_from_the_current_folder() {
        let table = [
            (None, "root://h//a", Ok("root://h:1094//a")),
            (None, "root://h", Ok("root://h:1094//")),
            (None, "/a", Err("names no server")),
            (None, "h//a", Err("names no server")),
            (None, "file:///a", Err("names no server")),
            (None, "gopher://h//a", Err("no protocol")),
            (Some("root://h//a/b"), "c", Ok("root://h:1094//a/b/c")),
            (Some("root://h//a/b"), "../../../c/./d/", Ok("root://h:1094//c/d")),
            (Some("root://h//a/b"), "/c", Ok("root://h:1094//c")),
            (Some("root://h//a/b"), ".", Ok("root://h:1094//a/b")),
            (Some("root://h//a/b"), "root://g:7//x", Ok("root://g:7//x")),
            (Some("root://h//a"), "", Err("empty")),
        ];
        for (base, text, expected) in table {
            match (context(base).url(text), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url.to_string(), expected, "{base:?} {text}"),
                (Err(Usage(error)), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, expected) => panic!("{base:?} {text}: {found:?}, expected {expected:?}"),
            }
        }
        let url = context(Some("root://h//a")).url("b?x=1").unwrap();
        assert_eq!(url.target(), "/a/b?x=1");
    }

    #[test]
    fn the_root_in_all_its_forms() {
        for root in ["/", "//", "/.", "/a/..", "/a/../..", "///.//"] {
            assert!(is_root(root), "{root}");
        }
        assert!(!is_root("/a") && !is_root("/a/../b"));
    }
}
