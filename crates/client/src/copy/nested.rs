//! Detection of nested directories: a copy would continue into itself, and a removal would remove
//! the source.
//!
//! Servers follow links, so the nesting can begin below the two roots: a link in the source leads
//! to the target, or to a directory above it. [`TargetPath`] compares each directory of the source
//! that is entered.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Copier;
use super::failure::CopyError;
use super::place::Place;
use crate::cluster_listing::join_bounded;
use crate::path::RemotePath;
use crate::url::Url;

/// The check whether one directory is inside another.
pub(super) struct NestingCheck<'a> {
    pub(super) copier: &'a Copier,
    pub(super) outer: &'a Place,
    pub(super) inner: &'a Place,
}

impl NestingCheck<'_> {
    /// Refuses directory `inner` if it is equal to `outer` or inside it, under any name.
    pub(super) async fn run(&self) -> Result<(), CopyError> {
        let Self { copier, outer, inner } = *self;
        let is_nested = match (outer, inner) {
            (Place::Local(outer), Place::Local(inner)) => {
                let (outer, inner) = (outer.clone(), inner.clone());
                copier.disk.run(move || is_local_nested(&outer, &inner)).await.unwrap_or(false)
            }
            (Place::Remote(outer), Place::Remote(inner)) => self.is_remote_nested(outer, inner).await,
            _ => false,
        };
        if is_nested { Err(inside(inner, outer)) } else { Ok(()) }
    }

    /// Compares names where both URLs have the same host; otherwise compares the status of `outer`
    /// with that of each directory above `inner`. Links and other names of a server can lead to the
    /// same directories, so different names are not enough.
    async fn is_remote_nested(&self, outer: &Url, inner: &Url) -> bool {
        let (above, path) = (components(&outer.path), components(&inner.path));
        let is_inside = path.starts_with(&above);
        if is_inside && (outer.authority() == inner.authority() || is_one_host(outer, inner) && path != above)
        {
            return true;
        }
        let client = &self.copier.client;
        let Ok(root) = client.file_system(outer).stat(&outer.path).await else { return false };
        let files = client.file_system(inner);
        for count in (0..=path.len()).rev() {
            let Some(part) = part_of(&path, count) else { return false };
            // Numbers are unique only at one server; number, time and owner together identify one
            // directory.
            if files.stat(&part).await.is_ok_and(|stat| stat.is_same_directory(&root)) {
                return true;
            }
        }
        false
    }
}

/// Reports whether two URLs may be those of one server although their ports differ. Directories of HTTP have no numbers,
/// and a server can have another port for HTTP than for the xroot protocol. A copy of a directory onto itself does no harm.
fn is_one_host(one: &Url, other: &Url) -> bool {
    let has_names_only = (one.is_http() || other.is_http()) && one.is_object() == other.is_object();
    has_names_only && one.host.eq_ignore_ascii_case(&other.host)
}

fn inside(inner: &Place, outer: &Place) -> CopyError {
    CopyError::Usage(format!("{inner} is inside {outer}: choose a place outside of it"))
}

/// The directories on the path to which a directory of the source is copied, with their numbers at
/// the server.
#[derive(Debug, Default)]
pub struct TargetPath {
    /// Set if both are at servers, which may be the same.
    is_needed: bool,
    /// Set if neither is a manager, so that equal numbers mean the same directory.
    is_one_server: bool,
    /// The root of the server, as an empty name, and the components behind it, each with the number
    /// of the directory if known.
    known: Vec<(String, Option<u64>)>,
}

impl TargetPath {
    /// Creates the comparison for copies from one directory to another.
    pub async fn between(copier: &Copier, source: &Place, target: &Place) -> Self {
        let (Place::Remote(source), Place::Remote(target)) = (source, target) else {
            return Self::default();
        };
        let is_server =
            async |url: &Url| copier.client.channel(url).await.is_ok_and(|channel| !channel.is_manager());
        let is_needed = may_be_one(copier, source, target).await;
        let is_one_server = is_needed && is_server(source).await && is_server(target).await;
        Self { is_needed, is_one_server, known: Vec::new() }
    }

    /// Refuses to enter a directory of the source that is `target`, into which it is copied, or an
    /// ancestor of `target`.
    ///
    /// # Errors
    /// [`CopyError`] because the copy would not end, or would copy its own results.
    pub async fn check(
        &mut self,
        copier: &Copier,
        source: &Place,
        number: Option<u64>,
        target: &Place,
    ) -> Result<(), CopyError> {
        let Place::Remote(url) = target else { return Ok(()) };
        if !self.is_needed {
            return Ok(());
        }
        // A server without numbers sends 0.
        let number = number.filter(|number| *number != 0);
        self.move_to(copier, url).await;
        let is_on_the_way =
            number.is_none_or(|number| self.known.iter().any(|(_, known)| *known == Some(number)));
        if is_on_the_way && number.is_some() && self.is_one_server {
            return Err(inside(target, source));
        }
        // Two servers of a cluster may use the same number, so the status decides. A directory that
        // is being changed can be missed.
        if is_on_the_way { copier.not_nested(source, target).await } else { Ok(()) }
    }

    /// Requests the numbers of the directories on the path to a directory. A missing directory is
    /// looked up again later.
    async fn move_to(&mut self, copier: &Copier, url: &Url) {
        let mut path = vec![""];
        path.extend(components(&url.path));
        let same = self.known.iter().zip(&path).take_while(|((known, _), name)| known == *name).count();
        self.known.truncate(same);
        self.known.extend(path.iter().skip(same).map(|name| ((*name).to_owned(), None)));
        let files = copier.client.file_system(url);
        let unknown = self.known.iter().enumerate().filter(|(_, (_, number))| number.is_none());
        let unknown: Vec<usize> = unknown.map(|(index, _)| index).collect();
        let stats = join_bounded(unknown, |index| {
            let (files, part) = (files.clone(), part_of(path.get(1..=index).unwrap_or_default(), index));
            async move {
                let stat = match part {
                    Some(part) => files.stat(&part).await.ok(),
                    None => None,
                };
                (index, stat)
            }
        });
        for (index, stat) in stats.await {
            if let Some((_, number)) = self.known.get_mut(index) {
                *number = stat.map(|stat| stat.id);
            }
        }
    }
}

/// Reports whether two places may be at one server. A server can have several names, under which
/// its root has the same status.
async fn may_be_one(copier: &Copier, source: &Url, target: &Url) -> bool {
    if source.authority() == target.authority() {
        return true;
    }
    let root = RemotePath::root();
    let (source, target) = (copier.client.file_system(source), copier.client.file_system(target));
    let (source, target) = tokio::join!(source.stat(&root), target.stat(&root));
    // Without the status of both roots, they may be one.
    source.ok().zip(target.ok()).is_none_or(|(source, target)| source.is_same_directory(&target))
}

/// Returns the first components of a path.
fn part_of(path: &[&str], count: usize) -> Option<RemotePath> {
    RemotePath::new(format!("/{}", path.get(..count).unwrap_or_default().join("/"))).ok()
}

fn components(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).collect()
}

/// Compares the nearest existing ancestor of `inner`, because the directories below it do not exist
/// yet.
fn is_local_nested(outer: &Path, inner: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let Some(outer) = id(outer) else { return false };
    let Ok(inner) = std::path::absolute(inner) else { return false };
    let existing = inner.ancestors().find_map(|path| std::fs::canonicalize(path).ok());
    existing.is_some_and(|path| path.ancestors().any(|path| id(path) == Some(outer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_http_is_one_server_whatever_its_port_is() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (one, other, expected) in [
            ("https://h//d", "root://h//d", true),
            ("http://H:8080//d", "https://h//d", true),
            ("root://h:1095//d", "root://h//d", false),
            ("https://h//d", "https://i//d", false),
            ("s3://h/d", "https://h//d", false),
            ("root://h//d", "root://h//d", false),
        ] {
            assert_eq!(is_one_host(&url(one), &url(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_directory_is_found_under_every_name() {
        let root = std::env::temp_dir().join(format!("scalla-nested-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("c")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        let nested = |inner: &str| is_local_nested(&root.join("a"), &root.join(inner));
        for inside in ["a", "a/b", "a/new/deeper", "link", "link/new", "c/../a/b"] {
            assert!(nested(inside), "{inside}");
        }
        for outside in ["c", "c/new", "ab", "."] {
            assert!(!nested(outside), "{outside}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
