//! [`Context`]: the client, and the resolution of URLs and paths in arguments.

use std::collections::HashMap;

use client::copy::has_wildcard;
use client::{Client, FileSystem, RemotePath, Scheme, Url, UrlError};

use super::console::Console;
use super::walk::DirectoryWalk;
use crate::named_servers;
use crate::usage_error::UsageError;

/// The environment of a command.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The client with its connections.
    pub(crate) client: Client,
    /// The current directory for paths without a server: its URL with an absolute path. If `None`,
    /// only URLs are accepted.
    pub(crate) base: Option<Url>,
    /// Words of the line with quoted wildcards.
    pub(crate) quoted: Quoted,
}

/// The patterns of the words in a shell line with quoted wildcards, by their text. In a pattern, a
/// backslash precedes each character that stands for itself.
#[derive(Clone, Default, Debug)]
pub(crate) struct Quoted(HashMap<String, String>);

impl Quoted {
    /// Creates the map from the words of a line, as texts and as patterns.
    pub(crate) fn new(texts: &[String], patterns: &[String]) -> Self {
        let mut quoted = HashMap::new();
        for (text, pattern) in texts.iter().zip(patterns) {
            // Components without wildcards are literal names.
            let parts = text.split('/').zip(pattern.split('/'));
            let parts: Vec<&str> =
                parts.map(|(text, pattern)| if has_wildcard(text) { pattern } else { text }).collect();
            let pattern = parts.join("/");
            if pattern != *text {
                quoted.insert(text.clone(), pattern);
            }
        }
        // A word that also occurs without quotes is treated as a pattern.
        for (text, pattern) in texts.iter().zip(patterns) {
            if text == pattern {
                quoted.remove(text);
            }
        }
        Self(quoted)
    }

    /// Returns the pattern of a word for a path on this machine.
    pub(crate) fn local_pattern(&self, text: &str) -> Option<&str> {
        self.0.get(text).map(String::as_str)
    }

    /// Returns the pattern of a word for a path at a server. There, a question mark begins the cgi,
    /// quoted or not.
    pub(crate) fn remote_pattern(&self, text: &str) -> Option<String> {
        let pattern = self.0.get(text)?;
        let (path, cgi) = text.split_at(text.find('?').unwrap_or(text.len()));
        if cgi.is_empty() {
            return Some(pattern.clone());
        }
        let parts = path.split('/').zip(pattern.split('/'));
        let parts: Vec<&str> = parts
            .map(|(text, pattern)| if has_wildcard(text) { pattern_prefix(text, pattern) } else { text })
            .collect();
        let path_pattern = parts.join("/");
        (path_pattern != path).then(|| format!("{path_pattern}{cgi}"))
    }

    /// Reports whether a pattern matches only a single name.
    pub(crate) fn is_literal(pattern: &str) -> bool {
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => drop(letters.next()),
                '*' | '?' | '[' => return false,
                _ => {}
            }
        }
        true
    }
}

/// Returns the part of a pattern that corresponds to the beginning of its text. Each character has
/// one counterpart, or two if the first is a backslash.
fn pattern_prefix<'a>(text: &str, pattern: &'a str) -> &'a str {
    let mut rest = pattern.chars();
    for _ in text.chars() {
        if rest.next() == Some('\\') {
            rest.next();
        }
    }
    pattern.get(..pattern.len() - rest.as_str().len()).unwrap_or(pattern)
}

impl Context {
    /// Creates a context from a client and the current directory.
    pub(crate) fn new(client: Client, base: Option<Url>) -> Self {
        Self { client, base, quoted: Quoted::default() }
    }

    /// Resolves an argument that may have wildcards. Also reports whether it has any.
    pub(super) fn pattern(&self, text: &str) -> Result<(Url, bool), UsageError> {
        match self.quoted.remote_pattern(text) {
            Some(pattern) if Quoted::is_literal(pattern.split('?').next().unwrap_or_default()) => {
                Ok((self.url(text)?, false))
            }
            Some(pattern) => self.url_or_pattern(&pattern),
            None => self.url_or_pattern(text),
        }
    }

    /// Resolves an argument that may be a pattern, and reports whether it is one.
    fn url_or_pattern(&self, text: &str) -> Result<(Url, bool), UsageError> {
        let mut is_pattern = None;
        let url = self.resolve(text, |url| {
            let (url, is) = url.with_decoded_pattern()?;
            is_pattern = Some(is);
            Ok(url)
        })?;
        let is_pattern = is_pattern.unwrap_or_else(|| has_wildcard(&url.path));
        Ok((url, is_pattern))
    }

    /// Resolves an argument. Relative paths begin at the current directory. The path of a bare
    /// `root://host` is `/`.
    pub(crate) fn url(&self, text: &str) -> Result<Url, UsageError> {
        self.resolve(text, Url::with_decoded_path)
    }

    fn resolve(
        &self,
        text: &str,
        decode: impl FnOnce(Url) -> Result<Url, UrlError>,
    ) -> Result<Url, UsageError> {
        let is_url = text.split_once("://").is_some_and(|(name, _)| !name.contains(['/', '?']));
        if is_url {
            let url = Url::parse(text).and_then(decode);
            let mut url = url.map_err(|error| UsageError(format!("{text}: {error}")))?;
            if matches!(url.scheme, Scheme::File | Scheme::Stdio) {
                return Err(local(text));
            }
            if url.path.is_empty() {
                url.path = RemotePath::root();
            }
            return Ok(url);
        }
        if let Some(url) = named_servers::resolve_named(text) {
            return url.map_err(UsageError);
        }
        if let (None, Some(url)) = (&self.base, named_servers::url_of_host(text)) {
            return self.url(&url);
        }
        let base = self.base.as_ref().ok_or_else(|| local(text))?;
        if text.is_empty() {
            return Err(UsageError("a path is empty".to_owned()));
        }
        let mut url = base.with_user_path(text).map_err(|error| UsageError(error.to_string()))?;
        if !text.starts_with('/') {
            let path = RemotePath::new(joined(&base.path, &url.path));
            url.path = path.map_err(|error| UsageError(format!("{text:?}: {error}")))?;
        }
        Ok(url)
    }

    /// Resolves arguments, or returns the current directory if there are none.
    pub(crate) fn urls_or_base(&self, texts: &[String]) -> Result<Vec<String>, UsageError> {
        match (texts.is_empty(), &self.base) {
            (false, _) => Ok(texts.to_vec()),
            (true, Some(base)) => Ok(vec![base.path.to_string()]),
            (true, None) => Err(UsageError("name what: root://HOST[:PORT]//PATH".to_owned())),
        }
    }

    /// Resolves arguments and expands their wildcards. Those without a match are reported as
    /// failures.
    pub(crate) async fn expand(&self, console: &Console, texts: &[String]) -> Result<Vec<Url>, UsageError> {
        let urls: Result<Vec<(Url, bool)>, UsageError> =
            texts.iter().map(|text| self.pattern(text)).collect();
        let mut found = Vec::new();
        for (url, has_wildcard) in urls? {
            if !has_wildcard {
                found.push(url);
                continue;
            }
            match self.files(&url).matching(&url.path).await {
                Ok(matches) => {
                    matches.failed.iter().for_each(|error| console.fail(&url, error));
                    found.extend(matches.paths.into_iter().map(|path| url.at(path)));
                }
                Err(error) => console.fail(&url, &error),
            }
        }
        Ok(found)
    }

    /// Returns the file system of a URL.
    pub(crate) fn files(&self, url: &Url) -> FileSystem {
        self.client.file_system(url)
    }

    /// Begins a walk through a directory. If it cannot begin, the failure is reported.
    pub(super) async fn walk(&self, console: &Console, url: &Url) -> Option<DirectoryWalk> {
        match DirectoryWalk::begin(&self.files(url), url).await {
            Ok(walk) => Some(walk),
            Err(error) => {
                console.fail(url, &error);
                None
            }
        }
    }

    /// Returns the name of a place in output: its path if it is at the current server, otherwise
    /// its URL.
    pub(crate) fn name(&self, url: &Url) -> String {
        match &self.base {
            Some(base) if base.authority() == url.authority() => url.path.to_string(),
            _ => url.to_string(),
        }
    }
}

fn local(text: &str) -> UsageError {
    UsageError(format!(
        "`{text}` names no server: write root://HOST[:PORT]//PATH, or set SCALLA_SERVER; for files of this machine use the system's own commands"
    ))
}

/// Joins a relative path to an absolute directory. Resolves `.` and `..`. The parent of the root is
/// the root.
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

/// Returns the last component of a path.
pub(super) fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Reports whether a path is the root, in any notation.
pub(super) fn is_root(path: &str) -> bool {
    joined("/", path) == "/"
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Settings;

    fn context(base: Option<&str>) -> Context {
        let base = base.map(|base| Url::parse(base).unwrap());
        Context::new(Client::with(Settings::default(), client::Credentials::none(), "test"), base)
    }

    #[test]
    fn arguments_are_urls_or_paths_from_the_current_directory() {
        let table = [
            (None, "root://h//a", Ok("root://h:1094//a")),
            (None, "root://h", Ok("root://h:1094//")),
            (None, "davs://h/a%20b", Ok("https://h:443/a b")),
            (None, "h:7", Ok("root://h:7//")),
            (None, "h.example.org//a", Ok("root://h.example.org:1094//a")),
            (Some("root://h//a/b"), "c:7", Ok("root://h:1094//a/b/c:7")),
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
                (Err(UsageError(error)), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, expected) => panic!("{base:?} {text}: {found:?}, expected {expected:?}"),
            }
        }
        let url = context(Some("root://h//a")).url("b?x=1").unwrap();
        assert_eq!(url.target(), "/a/b?x=1");
    }

    #[test]
    fn wildcards_that_are_quoted_stand_for_themselves() {
        let words = |words: &[(&str, &str)]| {
            let of = |index: usize| -> Vec<String> {
                words.iter().map(|word| [word.0, word.1][index].to_owned()).collect()
            };
            Quoted::new(&of(0), &of(1))
        };
        let mut context = context(Some("root://h//a"));
        context.quoted = words(&[
            ("b*", r"b\*"),
            (r"x\y/c*d*", r"x\\y/c\*d*"),
            ("e?x=1", r"e\?x=1"),
            ("h*?x=*", r"h\*\?x=\*"),
            (r"d*\?x=1", r"d*\\?x=1"),
            (r"d*\?x=2", r"d\*\\\?x=2"),
            (r"d\?x=3", r"d\\\?x=3"),
            (r"k\/d*?x=4", r"k\\/d*\?x=4"),
            ("f*", r"f\*"),
            ("f*", "f*"),
        ]);
        let table = [
            ("b*", "/a/b*", false),
            (r"x\y/c*d*", r"/a/x\y/c\*d*", true),
            ("e?x=1", "/a/e", false),
            ("h*?x=*", "/a/h*", false),
            // A backslash at the end of a name does not quote the question mark.
            (r"d*\?x=1", r"/a/d*\\", true),
            (r"d*\?x=2", r"/a/d*\", false),
            (r"d\?x=3", r"/a/d\", false),
            (r"k\/d*?x=4", r"/a/k\/d*", true),
            ("f*", "/a/f*", true),
            ("g*", "/a/g*", true),
        ];
        for (text, path, has_wildcard) in table {
            let (url, has) = context.pattern(text).ok().unwrap();
            assert_eq!((url.path.as_str(), has), (path, has_wildcard), "{text}");
        }
        assert_eq!(context.pattern("e?x=1").ok().unwrap().0.target(), "/a/e?x=1");
    }

    #[test]
    fn escaped_wildcards_of_http_name_one_file() {
        for (text, path, has_wildcard) in [
            ("https://h/d/run%2A", "d/run*", false),
            ("https://h/d/%5B1%5D", "d/[1]", false),
            ("https://h/d%2A/run*", r"d\*/run*", true),
            ("https://h/d/%2A*", r"d/\**", true),
        ] {
            let (url, has) = context(None).pattern(text).ok().unwrap();
            assert_eq!((url.path.as_str(), has), (path, has_wildcard), "{text}");
        }
    }

    #[test]
    fn the_root_in_all_its_forms() {
        for root in ["/", "//", "/.", "/a/..", "/a/../..", "///.//"] {
            assert!(is_root(root), "{root}");
        }
        assert!(!is_root("/a") && !is_root("/a/../b"));
    }
}
