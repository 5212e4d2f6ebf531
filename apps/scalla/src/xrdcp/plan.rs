//! Conversion of words to jobs: the files to copy, and their target names.

use super::options::Order;
use super::{Refusal, of_metalink, refuse};
use crate::stock::{self, Side, Status, code};
use client::copy::{Copier, CopyOptions, Place};
use client::walk::{Tree, Walk};
use client::{Client, Scheme, Url};
use std::path::{Path, PathBuf};

/// Exit status of local files that cannot be copied.
const FILE_STATUS: u8 = 2;

/// A single file to copy.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) source: Place,
    pub(super) target: Place,
    pub(super) size: Option<u64>,
    /// The reason why the job fails before it begins.
    pub(super) refused: Option<Status>,
}

impl Job {
    pub(super) fn source_name(&self) -> String {
        name(&self.source, "//")
    }

    pub(super) fn target_name(&self) -> String {
        name(&self.target, "//")
    }
}

/// Formats a place as checksum lines do.
pub(super) fn told(place: &Place) -> String {
    match place {
        Place::Local(path) => absolute(path).display().to_string(),
        place => name(place, "/"),
    }
}

fn name(place: &Place, slashes: &str) -> String {
    match place {
        Place::Local(path) => format!("file://localhost{}", absolute(path).display()),
        Place::Remote(url) => {
            let path = url.path.strip_prefix('/').unwrap_or(&url.path);
            format!("{}://{}{slashes}{path}", url.scheme.name(), url.authority())
        }
        Place::Stream => "stdio://-".to_owned(),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A source and its name below the target, which begins with the name of the given directory.
struct Found {
    place: Place,
    below: Option<PathBuf>,
    size: Option<u64>,
    /// The reason why it cannot be copied.
    refused: Option<Status>,
}

/// Returns the jobs of a command line.
pub(super) async fn jobs(
    order: &mut Order,
    options: &CopyOptions,
    copier: &Copier,
) -> Result<Vec<Job>, Refusal> {
    let client = copier.client();
    let (words, target) = split(order)?;
    let mut target = place(&target, true, &order.target_cgi)?;
    let mut found = Vec::new();
    for word in &words {
        let source = place(word, false, &order.source_cgi)?;
        match &source {
            Place::Local(path) => local(word, path, order.recursive, copier, &target, &mut found).await?,
            Place::Remote(url) => remote(url, order, client, &mut found).await?,
            Place::Stream => {
                found.push(Found { place: source, below: None, size: None, refused: None });
            }
        }
    }
    for one in &mut found {
        let metalink = copier.metalink(&one.place, options).await;
        let metalink = metalink.map_err(|error| Refusal::Prepare(of_metalink(&error)))?;
        if let Some(metalink) = metalink {
            one.size = metalink.size;
            if options.member_of(&one.place).is_none() {
                one.below = metalink.name.map(|name| name.as_str().into()).or(one.below.take());
            }
        }
    }
    if order.resume && order.force {
        let text = "Invalid argument combination: continue + force.\n";
        return Err(Refusal::Plain(text.to_owned(), 50));
    }
    let several = order.recursive || found.len() > 1;
    let into = match &mut target {
        Place::Stream => false,
        Place::Local(path) => {
            let there = std::fs::metadata(&*path);
            if several && !there.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
                return Err(match there {
                    Err(error) if order.listed.is_none() => processing(&error, &path.display().to_string()),
                    _ => Refusal::Plain(
                        "xrdcp: Destination is neither remote nor a directory.\n".to_owned(),
                        FILE_STATUS,
                    ),
                });
            }
            there.is_ok_and(|there| there.is_dir())
        }
        Place::Remote(url) => remote_target(url, several, order, client).await?,
    };
    let job = |found: Found| {
        let (to, refused) = match if into { join(&target, &found) } else { Ok(target.clone()) } {
            Ok(to) => (to, found.refused),
            Err(status) => (target.clone(), Some(status)),
        };
        Job { target: to, source: found.place, size: found.size, refused }
    };
    Ok(found.into_iter().map(job).collect())
}

/// Returns the sources and the target.
fn split(order: &mut Order) -> Result<(Vec<String>, String), Refusal> {
    let mut words = std::mem::take(&mut order.words);
    if words.is_empty() && order.listed.is_none() {
        return Err(refuse("No files specified.".to_owned()));
    }
    let target = words.pop().filter(|_| !words.is_empty() || order.listed.is_some());
    let target = target.ok_or_else(|| refuse("Destination not specified.".to_owned()))?;
    if let Some(file) = &order.listed {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let why = stock::text::system(&error);
            Refusal::Plain(format!("xrdcp: {why} opening infiles {file}\n"), FILE_STATUS)
        })?;
        words.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if words.is_empty() {
        return Err(refuse("Source not specified.".to_owned()));
    }
    Ok((words, target))
}

fn processing(error: &std::io::Error, name: &str) -> Refusal {
    Refusal::Plain(format!("xrdcp: {} processing {name}\n", stock::text::system(error)), FILE_STATUS)
}

/// Resolves a word. A word that is not a URL of a known kind is a local file.
fn place(word: &str, target: bool, cgi: &str) -> Result<Place, Refusal> {
    if word == "-" {
        return Ok(Place::Stream);
    }
    let local = || Ok(Place::Local(word.into()));
    let Some((scheme, rest)) = word.split_once("://") else { return local() };
    match scheme {
        "file" => {
            let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
            return Ok(Place::Local(path.into()));
        }
        "http" | "https" | "dav" | "davs" => {
            let name = if target { format!("{scheme}file") } else { format!("{scheme} file") };
            let text = format!("xrdcp: {name} protocol is not supported.\n");
            return Err(Refusal::Plain(text, super::USAGE_STATUS));
        }
        "root" | "xroot" | "roots" | "xroots" => {}
        _ => return local(),
    }
    let side = if target { Side::Destination } else { Side::Source };
    let mut url = Url::parse(word).map_err(|_| Refusal::Status(Status::invalid_address().at(side)))?;
    url.merge_cgi(cgi);
    Ok(Place::Remote(url))
}

/// Adds a local file, or with `recursive` the files below a directory.
async fn local(
    word: &str,
    path: &Path,
    recursive: bool,
    copier: &Copier,
    target: &Place,
    found: &mut Vec<Found>,
) -> Result<(), Refusal> {
    let there = std::fs::metadata(path).map_err(|error| processing(&error, word))?;
    if !there.is_dir() {
        let (place, below) = (Place::Local(path.to_owned()), path.file_name().map(PathBuf::from));
        found.push(Found { place, below, size: Some(there.len()), refused: None });
        return Ok(());
    }
    if !recursive {
        return Err(Refusal::Plain(format!("xrdcp: {word} is a directory.\n"), FILE_STATUS));
    }
    let name = absolute(path).file_name().map_or_else(PathBuf::new, PathBuf::from);
    // Like the real program, follows links. A link back to an ancestor is a failure.
    tree_of(copier.tree_here(path, target).following_links(), &name, found).await
}

fn failed(error: client::Error) -> Refusal {
    Refusal::Status(Status::from(error))
}

/// Adds a remote file, or with `-r` the files below a directory.
async fn remote(url: &Url, order: &Order, client: &Client, found: &mut Vec<Found>) -> Result<(), Refusal> {
    let url = url.clone();
    let named = url.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let named = PathBuf::from(named);
    let member = url.cgi.get("xrdcl.unzip").or(order.zip_member.as_ref());
    let member = member.and_then(|member| member.rsplit('/').next());
    let below = member.map_or_else(|| named.clone(), PathBuf::from);
    let fs = client.file_system(&url);
    if !order.recursive || !fs.is_dir(&url.path).await.map_err(failed)? {
        found.push(Found { place: Place::Remote(url), below: Some(below), size: None, refused: None });
        return Ok(());
    }
    let root = url.at(url.path.without_slashes());
    let tree = Tree::at_server(&fs, &root).await.map_err(failed)?;
    tree_of(tree, &named, found).await
}

/// Adds the files of a tree, under its name at the target.
async fn tree_of(tree: Tree, named: &Path, found: &mut Vec<Found>) -> Result<(), Refusal> {
    // Jobs are numbered in breadth-first order, like those of the real program.
    let mut walk = Walk::through(tree).nearest_first();
    while let Some(mut directory) = walk.next().await {
        if directory.items.is_empty()
            && let Some(whole) = directory.unknown.iter().find(|unknown| unknown.name.is_none())
        {
            return Err(failed(whole.error.clone()));
        }
        walk.enter_all(&mut directory);
        for item in directory.items.iter().filter(|item| !item.is_directory) {
            let below = named.join(directory.path.to_path()).join(item.name.to_os());
            let (place, size) = (directory.child(&item), Some(item.size));
            found.push(Found { place, below: Some(below), size, refused: None });
        }
        // An unreadable part is a failure, even at a single server of a cluster, because the copy
        // would be incomplete.
        for unknown in directory.unknown.drain(..) {
            let refused = Some(Status::from(unknown.error).at(Side::Source));
            found.push(Found { place: directory.place.clone(), below: None, size: None, refused });
        }
    }
    Ok(())
}

/// Checks whether the target is a directory, which several sources require.
async fn remote_target(url: &Url, several: bool, order: &Order, client: &Client) -> Result<bool, Refusal> {
    if !matches!(url.scheme, Scheme::Root | Scheme::Roots) {
        return Ok(false);
    }
    let written_as_folder = url.path.ends_with('/');
    let there = client.file_system(url).find(&url.path).await;
    match there.map_err(|error| Refusal::Status(Status::from(error)))? {
        Some(there) if there.is_dir() => Ok(true),
        Some(_) if !order.force && !order.resume && !order.zip_append => {
            Err(Refusal::Run(Status::error(code::INVALID_OPERATION).saying("file exists")))
        }
        Some(_) if several => Err(no_folder()),
        Some(_) => Ok(false),
        None if several && !written_as_folder => Err(no_folder()),
        None => Ok(written_as_folder),
    }
}

fn no_folder() -> Refusal {
    Refusal::Plain("Multiple sources were given but target is not a directory.\n".to_owned(), 50)
}

/// Returns the target of a source.
fn join(target: &Place, found: &Found) -> Result<Place, Status> {
    let below = found.below.as_deref().unwrap_or(Path::new("-"));
    let below = if found.refused.is_some() { Path::new("-") } else { below };
    below.iter().try_fold(target.clone(), |place, name| {
        place.join_os(name).map_err(|why| {
            let text = format!("{:?} cannot be copied to {target}: {why}", name.to_string_lossy());
            Status::error(code::NOT_SUPPORTED).saying(text).at(Side::Destination)
        })
    })
}
