//! Changes of the name space of origins.

use crate::cached_origin::{FileCache, ProxyCacheChange, make_change};
use crate::file_system::{PathAtOrigin, ProxyFiles};
use crate::place::RequestFailure;
use base::{Cgi, Error, LogicalPath};
use std::sync::Arc;
use vfs::{Answer, Caller, Operation, ReplyTo, Started, Target, Value};

impl ProxyFiles {
    /// Starts a change of a name, which every export but a read-only one allows.
    pub(crate) fn change(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let (who, cache) = ((caller, reply), self.cache.clone());
        let checked = match &operation {
            Operation::MakeDirectory { target, .. } => {
                self.config.check_writable(&target.path, "Creating", "mkdir")
            }
            Operation::Rename { from, to, .. } => self
                .config
                .check_writable(&from.path, "Renaming", "rename")
                .and_then(|()| self.config.check_writable(&to.path, "Renaming to", "rename")),
            Operation::RemoveDirectory(target) | Operation::Remove(target) => {
                self.config.check_writable(&target.path, "Removing", "remove")
            }
            Operation::Truncate { target, .. } => {
                self.config.check_writable(&target.path, "Truncating", "truncate")
            }
            _ => Ok(()),
        };
        if let Err(error) = checked {
            return Started::Done(Answer::Error(error));
        }
        match operation {
            Operation::MakeDirectory { target, mode, parents, existing_parent } => {
                let parent = match self.existing(caller, existing_parent, &target.cgi, reply) {
                    Ok(parent) => parent,
                    Err(error) => return Started::Done(Answer::Error(error)),
                };
                let mode = u16::try_from(mode & 0o777).unwrap_or(0o755);
                self.ask(who, (target, "Creating", "mkdir"), move |at| async move {
                    check_exists(parent).await?;
                    at.change(async |files| files.mkdir(at.path(), mode, parents).await).await.map(nothing)
                })
            }
            Operation::RemoveDirectory(target) => {
                self.ask(who, (target, "Removing", "remove"), |at| async move {
                    at.change(async |files| files.rmdir(at.path()).await).await.map(nothing)
                })
            }
            Operation::Remove(target) => self.ask(who, (target, "Removing", "remove"), |at| async move {
                let request = at.change(async |files| files.rm(at.path()).await);
                make_change(change_name(cache.as_ref(), &at), request).await.map(|((), _)| Value::Nothing)
            }),
            Operation::Rename { from, replace: false, .. } => {
                let text =
                    format!("Unable to rename {} without replacing; the origin cannot", from.path.text());
                Started::Done(Answer::error(base::ErrorKind::Unsupported, text))
            }
            Operation::Rename { from, to, existing_parent, replace: true } => {
                self.rename(caller, (from, to), existing_parent, reply)
            }
            Operation::Truncate { target, size } => {
                self.ask(who, (target, "Truncating", "truncate"), move |at| async move {
                    let change = cache.as_ref().zip(at.cached.as_ref());
                    let change = change.map(|(cache, path)| cache.change_content(path));
                    let request = at.change(async |files| files.truncate(at.path(), size).await);
                    make_change(change, request).await.map(|((), _)| Value::Nothing)
                })
            }
            _ => Started::Done(Answer::error(base::ErrorKind::Unsupported, "it changes no name")),
        }
    }

    fn rename(
        &self,
        caller: &Arc<Caller>,
        (from, to): (Target, Target),
        existing_parent: Option<LogicalPath>,
        reply: &ReplyTo,
    ) -> Started {
        let Some(from) = with_text_of_both(from, &to) else {
            let text =
                format!("Unable to rename {}; the opaque text of its new name differs", to.path.text());
            return Started::Done(Answer::error(base::ErrorKind::Unsupported, text));
        };
        let parent = match self.existing(caller, existing_parent, &to.cgi, reply) {
            Ok(parent) => parent,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        let new = match self.at(caller, &to, "Renaming to", reply) {
            Ok(new) => new,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        let (path, both, cache) = (from.path.clone(), (caller, reply), self.cache.clone());
        self.ask(both, (from, "Renaming", "rename"), move |at| async move {
            if !at.is_same_origin(&new) {
                let text = format!("{} and its new name have different origins", path.text());
                let cause = client::Cause::Unsupported(text);
                return Err(RequestFailure::Client(client::Error::new("mv", at.path(), cause)));
            }
            check_exists(parent).await?;
            let changes = [change_name(cache.as_ref(), &at), change_name(cache.as_ref(), &new)];
            let request = at.change(async |files| files.mv(at.path(), new.path()).await);
            make_change(changes.into_iter().flatten(), request).await.map(|((), _)| Value::Nothing)
        })
    }

    /// Returns a directory that must exist, with the opaque text of the request. Those above all exports
    /// exist.
    fn existing(
        &self,
        caller: &Caller,
        directory: Option<LogicalPath>,
        cgi: &Cgi,
        reply: &ReplyTo,
    ) -> Result<Option<PathAtOrigin>, Error> {
        let Some(path) = directory.filter(|path| self.config.export(path, "Creating").is_ok()) else {
            return Ok(None);
        };
        self.at(caller, &Target { path, cgi: cgi.clone() }, "Creating", reply).map(Some)
    }
}

/// Adds the opaque text of the new name to that of the old one, because the request to the origin has one for
/// both. Returns `None` if they contradict each other.
fn with_text_of_both(from: Target, to: &Target) -> Option<Target> {
    let mut text = from.cgi.as_bytes().to_vec();
    for element in to.cgi.as_bytes().split(|&byte| byte == b'&').filter(|element| !element.is_empty()) {
        let key = element.split(|&byte| byte == b'=').next().unwrap_or_default();
        let mut given = from.cgi.pairs().filter(|(known, _)| *known == key).map(|(_, value)| value);
        match given.next() {
            None if text.is_empty() => text = element.to_vec(),
            None => text = [text.as_slice(), element].join(&b'&'),
            Some(value) if element.get(key.len() + 1..).unwrap_or_default() == value => {}
            Some(_) => return None,
        }
    }
    Some(Target { path: from.path, cgi: Cgi::new(&text) })
}

/// Begins a change of a file or directory in the cache.
fn change_name(cache: Option<&FileCache>, at: &PathAtOrigin) -> Option<ProxyCacheChange> {
    Some(cache?.change_name(at.cached.as_ref()?))
}

/// Fails if a directory does not exist at its origin. The origin could not be told to create missing
/// directories below it only.
pub(crate) async fn check_exists(directory: Option<PathAtOrigin>) -> Result<(), RequestFailure> {
    if let Some(at) = directory {
        let found = at.run(async |files| files.stat(at.path()).await).await?;
        if at.is_in_object_store() && !found.is_dir() {
            let cause = client::Cause::Server {
                code: client::xroot::ErrorCode::FS_ERROR,
                text: format!("{} is not a directory", at.path()),
            };
            return Err(RequestFailure::Client(client::Error::new("stat", at.path(), cause)));
        }
    }
    Ok(())
}

fn nothing((): ()) -> Value {
    Value::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opaque_text_of_both_names_is_sent() {
        let both = |from: &str, to: &str| {
            let parse = |text: &str| Target::parse(text.as_bytes(), "Renaming").unwrap();
            let text = with_text_of_both(parse(from), &parse(to))?.cgi;
            Some(String::from_utf8(text.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(both("/a", "/b?authz=t"), Some("authz=t".to_owned()));
        assert_eq!(both("/a?x=1", "/b?authz=t&x=1"), Some("x=1&authz=t".to_owned()));
        assert_eq!(both("/a?authz=s", "/b"), Some("authz=s".to_owned()));
        assert_eq!(both("/a?authz=s", "/b?authz=t"), None);
    }
}
