//! Resolution of places in a shell, where paths begin at a server or on this machine.

use crate::copy::option_values;
use crate::files::{Context, Quoted};
use client::copy::{Place, has_wildcard, matches};
use client::{RemotePath, Url};
use std::path::{Path, PathBuf};

/// The side of a plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathSide {
    /// On this machine.
    Local,
    /// At the server.
    Server,
}

/// Resolves `text`: a URL, `-`, `file:` with a path of this machine, or a path on `side`.
pub(super) fn resolve_place(text: &str, side: PathSide, context: &Context) -> Result<Place, String> {
    let is_url = text.contains("://") && !text.starts_with(['/', '.']);
    if text == "-" || is_url {
        return option_values::parse_place(text).map_err(|error| format!("`{text}`: {error}"));
    }
    match (text.strip_prefix("file:"), side) {
        (Some(""), _) => Err(format!("`{text}` names no file")),
        (Some(path), _) => Ok(Place::Local(path.into())),
        (None, PathSide::Local) => Ok(Place::Local(text.into())),
        (None, PathSide::Server) => context.url(text).map(Place::Remote).map_err(|error| error.to_string()),
    }
}

/// Resolves a source of a copy, which may have wildcards at a server.
pub(super) fn resolve_source(text: &str, side: PathSide, context: &Context) -> Result<Place, String> {
    match (resolve_place(text, side, context)?, context.quoted.remote_pattern(text)) {
        // A copy resolves wildcards itself, so quoted ones must be passed as a pattern.
        (Place::Remote(_), Some(pattern)) => resolve_place(&pattern, side, context),
        (found, _) => Ok(found),
    }
}

/// Resolves the sources on one side and the target on the other, which is last. The target of a
/// single place is the current directory.
pub(super) fn resolve_transfer(
    texts: &[String],
    from: PathSide,
    context: &Context,
    listed: bool,
) -> Result<Vec<Place>, String> {
    let to = if from == PathSide::Local { PathSide::Server } else { PathSide::Local };
    let (sources, target) = match texts {
        [target] if listed => (&[][..], target.as_str()),
        [_] => (texts, "."),
        [sources @ .., target] => (sources, target.as_str()),
        [] => (texts, "."),
    };
    let mut places = Vec::new();
    for text in sources {
        match (resolve_source(text, from, context)?, context.quoted.local_pattern(text)) {
            (Place::Local(_), Some(pattern)) if !Quoted::is_literal(pattern) => {
                places.extend(expanded(Path::new(pattern))?);
            }
            (Place::Local(path), None) if has_wildcard(text) => places.extend(expanded(&path)?),
            (place, _) => places.push(place),
        }
    }
    places.push(resolve_place(target, to, context)?);
    Ok(places)
}

/// Returns the files of this machine that match a path with wildcards, sorted. A file with exactly
/// this name takes precedence.
fn expanded(pattern: &Path) -> Result<Vec<Place>, String> {
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
    if exists(&pattern.to_path_buf()) {
        return Ok(vec![Place::Local(pattern.to_path_buf())]);
    }
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let part = component.as_os_str().to_string_lossy();
        if !has_wildcard(&part) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        found = found
            .iter()
            .flat_map(|directory| names(directory, &part).into_iter().map(|name| directory.join(name)))
            .collect();
    }
    found.retain(exists);
    if found.is_empty() {
        Err(format!("`{}` stands for no file", pattern.display()))
    } else {
        Ok(found.into_iter().map(Place::Local).collect())
    }
}

/// Returns the matching names in a directory, sorted.
fn names(directory: &Path, pattern: &str) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_meant =
        |name: &String| matches(pattern, name) && (pattern.starts_with('.') || !name.starts_with('.'));
    let mut names: Vec<String> = names.filter(is_meant).collect();
    names.sort();
    names
}

/// Returns the URL without `.` and `..` in its path.
pub(super) fn normalized(url: &Url) -> Url {
    let mut parts: Vec<&str> = Vec::new();
    for part in url.path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // Components of a path form a valid path.
    url.at(RemotePath::new(format!("/{}", parts.join("/"))).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{Client, Credentials, Settings};

    fn context() -> Context {
        Context::new(
            Client::with(Settings::default(), Credentials::none(), "test"),
            Url::parse("root://h//a").ok(),
        )
    }

    #[test]
    fn plain_paths_are_on_the_side_that_is_meant() {
        let of =
            |text: &str, side: PathSide| resolve_place(text, side, &context()).map(|place| place.to_string());
        let table = [
            ("b", PathSide::Server, Ok("root://h:1094//a/b")),
            ("../b", PathSide::Server, Ok("root://h:1094//b")),
            ("b", PathSide::Local, Ok("b")),
            ("file:b", PathSide::Server, Ok("b")),
            ("file:///b", PathSide::Server, Ok("/b")),
            ("root://g//b", PathSide::Local, Ok("root://g:1094//b")),
            ("-", PathSide::Server, Ok("-")),
            ("file:", PathSide::Server, Err("names no file")),
            ("gopher://x", PathSide::Local, Err("gopher")),
        ];
        for (text, side, expected) in table {
            match (of(text, side), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn copies_go_across() {
        let of = |texts: &[&str], from: PathSide, listed: bool| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let places = resolve_transfer(&texts, from, &context(), listed).unwrap();
            places.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["f"], PathSide::Server, false), ["root://h:1094//a/f", "."]);
        assert_eq!(
            of(&["f", "g", "d/"], PathSide::Server, false),
            ["root://h:1094//a/f", "root://h:1094//a/g", "d/"]
        );
        assert_eq!(of(&["f"], PathSide::Local, false), ["f", "root://h:1094//a"]);
        assert_eq!(of(&["f", "/g"], PathSide::Local, false), ["f", "root://h:1094//g"]);
        assert_eq!(of(&["d"], PathSide::Server, true), ["d"]);
    }

    #[test]
    fn quoted_wildcards_are_names() {
        let mut context = context();
        let texts = ["x*y".to_owned(), "d*/z*".to_owned()];
        context.quoted = Quoted::new(&texts, &[r"x\*y".to_owned(), r"d\*/z*".to_owned()]);
        let found =
            resolve_transfer(&[texts[0].clone(), "t".to_owned()], PathSide::Server, &context, false).unwrap();
        let Some(Place::Remote(url)) = found.first() else { panic!("{found:?}") };
        assert_eq!(url.path, r"/a/x\*y");
        let here =
            resolve_transfer(&[texts[0].clone(), "t".to_owned()], PathSide::Local, &context, false).unwrap();
        assert_eq!(here.first().map(ToString::to_string).as_deref(), Some("x*y"));
    }

    #[test]
    fn wildcards_of_this_machine_are_resolved() {
        let directory = std::env::temp_dir().join(format!("scalla-places-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("d1")).unwrap();
        for name in ["d1/b.root", "d1/a.root", "d1/.c.root", "x[1]"] {
            std::fs::write(directory.join(name), "").unwrap();
        }
        let found = |pattern: &str| {
            let names = |places: Vec<Place>| {
                places.iter().filter_map(|place| place.name()?.into_string().ok()).collect::<Vec<_>>()
            };
            expanded(&directory.join(pattern)).map(names)
        };
        assert_eq!(found("d?/*.root").as_deref(), Ok(&["a.root".to_owned(), "b.root".to_owned()][..]));
        assert_eq!(found("x[1]").as_deref(), Ok(&["x[1]".to_owned()][..]));
        assert!(found("nope*").unwrap_err().contains("no file"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn directories_are_named_plainly() {
        for (path, expected) in [("/", "/"), ("/a/../b/.//c/", "/b/c"), ("/../..", "/"), ("//a", "/a")] {
            let url = Url::parse("root://h//").unwrap().with_user_path(path).unwrap();
            assert_eq!(normalized(&url).path, expected);
        }
    }
}
