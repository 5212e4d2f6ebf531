//! Short names of servers: `SCALLA_SERVER`, and the file of named servers.
//!
//! `~/.config/scalla/servers` has a line `NAME = URL` per server, and `#` begins a comment.
//! `NAME:/PATH` is a path at that server, `NAME:PATH` is one below the URL, and `NAME:` is the URL.
//! `SCALLA_SERVER` (a name, `HOST[:PORT]` or a URL) is the default server of paths in the commands
//! for remote files.

use std::path::PathBuf;
use std::sync::OnceLock;

use client::{RemotePath, Url};

use crate::environment::home;
use crate::printer::err;

/// Maximum number of bytes read from the file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Words before a colon that are reserved.
const RESERVED: [&str; 7] = ["file", "root", "roots", "xroot", "xroots", "http", "https"];

/// Resolves a text that begins with the name of a server.
pub(crate) fn resolve_named(text: &str) -> Option<Result<Url, String>> {
    let (name, path) = text.split_once(':')?;
    if !is_name(name) || is_port(path) || path.starts_with("//") {
        return None;
    }
    let url = configured_servers().iter().find(|(known, _)| known == name).map(|(_, url)| url)?;
    Some(below(url, path).map_err(|error| format!("`{text}`: {error}")))
}

/// Returns the named servers with their URLs.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Url)> {
    configured_servers().iter().map(|(name, url)| (name.as_str(), url))
}

/// Returns the URL of a host with or without a path: `HOST:PORT`, `HOST:PORT/PATH`. A word without
/// a dot and a port is ambiguous.
pub(crate) fn url_of_host(text: &str) -> Option<String> {
    let (place, path) = text.split_once('/').map_or((text, ""), |(place, path)| (place, path));
    let path = path.trim_start_matches('/');
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !place.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let is_address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
    });
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let is_name =
        host.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && host.bytes().all(letters);
    let is_unambiguous =
        is_address || port.is_some() || host == "localhost" || host.trim_end_matches('.').contains('.');
    let fits = (is_address || is_name) && is_unambiguous && port.is_none_or(is_port);
    fits.then(|| format!("root://{place}//{path}"))
}

/// Returns the server named by `SCALLA_SERVER`, as a directory.
pub(crate) fn default_server() -> Result<Option<Url>, String> {
    match std::env::var("SCALLA_SERVER") {
        Ok(text) if !text.is_empty() => {
            server_directory(&text).map(Some).map_err(|error| format!("SCALLA_SERVER: {error}"))
        }
        _ => Ok(None),
    }
}

/// Parses the URL of a server, or its short name or `host[:port]`.
pub(crate) fn parse_server(text: &str) -> Result<Url, String> {
    let name = format!("{}:", text.strip_suffix(':').unwrap_or(text));
    resolve_named(text).or_else(|| resolve_named(&name)).unwrap_or_else(|| parse_host(text))
}

/// Parses the URL of a server or `host[:port]`, without short names.
fn parse_host(text: &str) -> Result<Url, String> {
    let is_place = !text.contains("://") && !text.starts_with(['/', '-', '.']);
    let named = if is_place { format!("root://{text}") } else { text.to_owned() };
    let url = Url::parse(&named).map_err(|error| format!("`{text}`: {error}"))?;
    if url.host.is_empty() {
        return Err(format!("`{text}` names no server: root://HOST[:PORT]"));
    }
    Ok(url)
}

/// Resolves a server by its name, host or URL, as a directory.
fn server_directory(text: &str) -> Result<Url, String> {
    let mut url = parse_server(text)?;
    if url.path.is_empty() {
        url.path = RemotePath::root();
    }
    Ok(url)
}

fn is_name(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(letters) && !RESERVED.contains(&text)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Resolves a path after the name of a server.
fn below(url: &Url, path: &str) -> Result<Url, String> {
    if path.is_empty() {
        return Ok(url.clone());
    }
    let whole = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{}/{path}", url.path.trim_end_matches('/')),
    };
    url.with_user_path(&whole).map_err(|error| error.to_string())
}

/// Reads the named servers of this user. Problems are reported by the first call.
fn configured_servers() -> &'static [(String, Url)] {
    static KNOWN: OnceLock<Vec<(String, Url)>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let Some(path) = file() else { return Vec::new() };
        let read = || -> std::io::Result<String> {
            use std::io::Read;
            let mut text = String::new();
            std::fs::File::open(&path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = match read() {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                let why = base::errno_text(&error);
                err().line(format_args!("scalla: warning: {}: {why}", path.display()));
                return Vec::new();
            }
        };
        let (servers, problems) = parse(&text);
        for problem in problems {
            err().line(format_args!("scalla: warning: {}:{problem}", path.display()));
        }
        servers
    })
}

/// Returns the path of the file: `scalla/servers` in the configuration directory
/// (`XDG_CONFIG_HOME`, or `~/.config`).
fn file() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(named.or_else(|| Some(home()?.join(".config")))?.join("scalla/servers"))
}

/// Returns the servers of a file, and the problems of its other lines.
fn parse(text: &str) -> (Vec<(String, Url)>, Vec<String>) {
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entry(line) {
            Ok(entry) => servers.push(entry),
            Err(why) => problems.push(format!("{}: {why}", index + 1)),
        }
    }
    (servers, problems)
}

fn entry(line: &str) -> Result<(String, Url), String> {
    let (name, url) = line.split_once('=').ok_or("write NAME = root://HOST[:PORT]//PATH")?;
    let (name, text) = (name.trim(), url.trim());
    if !is_name(name) {
        return Err(format!("`{name}` is no name for a server: letters, digits, - _ . and not a protocol"));
    }
    let mut url = parse_host(text)?;
    if url.path.is_empty() {
        url.path = RemotePath::root();
    }
    Ok((name.to_owned(), url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_cannot_be_anything_else() {
        for (text, url) in [
            ("h:1094", "root://h:1094//"),
            ("h.example.org", "root://h.example.org//"),
            ("h.example.org//a/b", "root://h.example.org//a/b"),
            ("127.0.0.1:7/a", "root://127.0.0.1:7//a"),
            ("[::1]", "root://[::1]//"),
            ("[::1]:7//a", "root://[::1]:7//a"),
            ("localhost", "root://localhost//"),
        ] {
            assert_eq!(url_of_host(text).as_deref(), Some(url), "{text}");
        }
        for text in ["h", "/a", "./a.b", "../a", "a/b.c", "h:", "h:x", ":1", "", ".a", "a b.c", "::1", "-a.b"]
        {
            assert_eq!(url_of_host(text), None, "{text}");
        }
    }

    #[test]
    fn a_server_is_a_url_or_a_host() {
        let table = [
            ("h", Ok("root://h:1094")),
            ("h:7", Ok("root://h:7")),
            ("[::1]:7", Ok("root://[::1]:7")),
            ("root://h//a", Ok("root://h:1094//a")),
            ("/etc", Err("names no server")),
            ("h:x", Err("`h:x`")),
            ("gopher://h", Err("no protocol")),
        ];
        for (text, expected) in table {
            match (parse_server(text), expected) {
                (Ok(url), Ok(expected)) => assert!(url.to_string().starts_with(expected), "{text}: {url}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn servers_of_a_file_and_paths_at_them() {
        let text = "# comment\n\n site1 = root://h:1095//set/ \nbad\nroot = root://h\nx y = root://h\ntwo=h2.example.org\n";
        let (servers, problems) = parse(text);
        let names: Vec<&str> = servers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["site1", "two"]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("4: "), "{problems:?}");
        let (_, site1) = &servers[0];
        for (path, url) in
            [("", "root://h:1095//set/"), ("/a", "root://h:1095//a"), ("a/b?x=1", "root://h:1095//set/a/b")]
        {
            assert_eq!(below(site1, path).unwrap().to_string(), url, "{path}");
        }
        assert_eq!(below(&servers[1].1, "a").unwrap().to_string(), "root://h2.example.org:1094//a");
    }
}
