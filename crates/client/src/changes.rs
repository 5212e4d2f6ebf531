//! Changes of the name space of a [`FileSystem`].
//!
//! A request is sent only once if making it twice could do more than requested. For example,
//! another client may create a new file of that name in between. When the reply is lost, the server
//! that received the request is queried for the current state. If that does not prove that the
//! request was carried out, the error is uncertain ([`Error::is_uncertain`]).

use std::time::Duration;

use rawclient::Encoded;
use tokio::time::Instant;
use wire::xroot::flags::{MkdirOptions, StatOptions};
use wire::xroot::request::{Chmod, Mkdir, Mv, Request, Rm, Rmdir, Truncate};
use wire::xroot::{ErrorCode, FileHandle};

use crate::answers::StatInfo;
use crate::channel::BodyLimit;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, stat};
use crate::path::{RemotePath, RequestTarget};
use crate::request_loop::Repeat;
use crate::route::{PathRequest, Route};
use crate::url::Url;

/// Rounds of attempts to reach a server that did not answer.
pub(crate) const ROUNDS_AGAIN: u64 = 4;
/// Maximum time to query its state.
const LOOK_TIME: Duration = Duration::from_secs(30);

/// Returns the status of `at` from that server and no other; `None` if it does not exist.
pub(crate) async fn look_at(client: &Client, at: &Url) -> Result<Option<StatInfo>, Error> {
    let end = Instant::now() + LOOK_TIME;
    let mut route = Route::back_to(client, at, at.clone(), ROUNDS_AGAIN, end);
    let request = |url: &Url, _: bool| stat(&url.target(), StatOptions::NONE);
    let ask = PathRequest {
        name: "stat",
        repeat: Repeat::Anywhere,
        slow: false,
        limit: BodyLimit::ANSWER,
        request: &request,
    };
    match Box::pin(route.ask(client, &ask)).await {
        Ok(arrived) => {
            StatInfo::parse(&arrived.received.body).map(Some).map_err(|cause| route.error("stat", cause))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the error of an uncertain outcome when the server cannot be queried.
pub(crate) fn not_asked(error: Error, why: &Error) -> Error {
    error.afterwards(format!("its server cannot be asked ({})", why.cause()))
}

/// One change of an entry.
struct Change<'a> {
    files: &'a FileSystem,
    /// The operation as errors name it.
    name: &'static str,
    path: &'a str,
}

impl Change<'_> {
    /// Makes a change that has the same effect when it is made twice.
    async fn make(&self, request: impl Fn(&RequestTarget) -> Encoded + Sync) -> Result<(), Error> {
        self.files.ask(self.name, self.path, true, |url, _| request(&url.target())).await.map(|_| ())
    }

    /// Makes a change that must not be made twice. An uncertain error is returned with the server
    /// of the request.
    async fn make_once(&self, request: impl Fn(&Url, bool) -> Encoded + Sync) -> Result<(), (Error, Url)> {
        let Self { files, name, path } = *self;
        let url = files.url_of(name, path).map_err(|error| (error, files.url.clone()))?;
        let mut route = Route::new(&files.client, &url, files.client.end());
        let ask = PathRequest {
            name,
            repeat: Repeat::Never,
            slow: false,
            limit: BodyLimit::ANSWER,
            request: &request,
        };
        let done = route.ask(&files.client, &ask).await;
        done.map(|_| ()).map_err(|error| (error, route.at))
    }

    /// Removes the entry. When the reply is lost, it counts as removed if it no longer exists.
    async fn remove(&self, request: impl Fn(&RequestTarget) -> Encoded + Sync) -> Result<(), Error> {
        let (error, at) = match self.make_once(|url, _| request(&url.target())).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !error.is_uncertain() {
            return Err(error);
        }
        match look_at(&self.files.client, &at).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(error.afterwards("something of that name is there")),
            Err(why) => Err(not_asked(error, &why)),
        }
    }

    /// Creates a directory. When the reply is lost, the error describes the entry that exists now.
    async fn create(&self, request: impl Fn(&RequestTarget) -> Encoded + Sync) -> Result<(), Error> {
        let (error, at) = match self.make_once(|url, _| request(&url.target())).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !error.is_uncertain() {
            return Err(error);
        }
        Err(match look_at(&self.files.client, &at).await {
            Ok(None) => error.afterwards("there is none of that name now"),
            Ok(Some(found)) if found.is_dir() => error.afterwards("there is a directory of that name"),
            Ok(Some(_)) => error.afterwards("there is a file of that name"),
            Err(why) => not_asked(error, &why),
        })
    }

    /// Determines whether a rename whose reply was lost was carried out at the server `at`.
    async fn moved(
        &self,
        error: Error,
        at: &Url,
        new: &RemotePath,
        before: Option<&StatInfo>,
    ) -> Result<(), Error> {
        let client = &self.files.client;
        let (old, new) = match (look_at(client, at).await, look_at(client, &at.at(new.clone())).await) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(why), _) | (_, Err(why)) => return Err(not_asked(error, &why)),
        };
        let is_it = |found: &StatInfo, before: &StatInfo| found.id != 0 && found.id == before.id;
        match (old, new) {
            (None, Some(found)) if before.is_some_and(|before| is_it(&found, before)) => Ok(()),
            (None, _) => Err(error.afterwards("there is nothing of the old name")),
            (Some(_), _) => Err(error.afterwards("something of the old name is there")),
        }
    }
}

impl FileSystem {
    /// Creates a directory and its missing ancestors. An existing one is accepted, whatever its
    /// permissions.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn mkdir_all(&self, path: &str, mode: u16) -> Result<(), Error> {
        match self.mkdir(path, mode, true).await {
            // Servers accept an existing directory only if it has the same permissions.
            Err(error) if error.code() == Some(ErrorCode::IT_EXISTS) => {
                if self.is_dir(path).await? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            made => made,
        }
    }

    /// Creates a directory. With `parents`, it also creates missing ancestors, and accepts an
    /// existing directory of the same permissions. HTTP has no permissions.
    ///
    /// # Errors
    /// [`Error`]. Without `parents` it is uncertain when the reply is lost, because it is unknown
    /// which client created the directory.
    pub async fn mkdir(&self, path: &str, mode: u16, parents: bool) -> Result<(), Error> {
        if let Some(files) = self.http() {
            return files.make_directory(path, parents).await;
        }
        let options = if parents { MkdirOptions::MKPATH } else { MkdirOptions::NONE };
        let request = |target: &RequestTarget| {
            Encoded::new(&Request::Mkdir(Mkdir { options, mode, path: target.as_bytes() }))
        };
        let change = Change { files: self, name: "mkdir", path };
        if parents { change.make(request).await } else { change.create(request).await }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error`], uncertain when the reply is lost and the file is still there, or its server does
    /// not answer.
    pub async fn rm(&self, path: &str) -> Result<(), Error> {
        if let Some(files) = self.http() {
            return files.remove_file(path).await;
        }
        let request = |target: &RequestTarget| Encoded::new(&Request::Rm(Rm { path: target.as_bytes() }));
        Change { files: self, name: "rm", path }.remove(request).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error`], uncertain as that of [`FileSystem::rm`].
    pub async fn rmdir(&self, path: &str) -> Result<(), Error> {
        if let Some(files) = self.http() {
            return files.remove_directory(path).await;
        }
        let request =
            |target: &RequestTarget| Encoded::new(&Request::Rmdir(Rmdir { path: target.as_bytes() }));
        Change { files: self, name: "rmdir", path }.remove(request).await
    }

    /// Renames an entry. An existing file of the new name is replaced.
    ///
    /// # Errors
    /// [`Error`], uncertain when the reply is lost and the server does not show the file under its
    /// new name.
    pub async fn mv(&self, old: &str, new: &str) -> Result<(), Error> {
        let new = self.url_of("mv", new)?.path;
        if self.url.is_http() {
            let text =
                "entries are not renamed over HTTP; use root:// at a server that speaks both".to_owned();
            return Err(self.error("mv", old, Cause::Unsupported(text)));
        }
        // The identity of the file, in case it has to be found again.
        let before = match self.stat(old).await {
            Err(error) if error.is_transient() => return Err(error),
            before => before.ok(),
        };
        let request = |url: &Url, _: bool| {
            // The cgi added by servers on the way belongs to both names.
            let (old, new) = (url.target(), url.target_of(&new));
            let arg1len = i16::try_from(old.as_bytes().len()).unwrap_or(0);
            let args = [old.as_bytes(), b" ", new.as_bytes()].concat();
            Encoded::new(&Request::Mv(Mv { arg1len, args: &args }))
        };
        let change = Change { files: self, name: "mv", path: old };
        match change.make_once(request).await {
            Ok(()) => Ok(()),
            Err((error, at)) if error.is_uncertain() => change.moved(error, &at, &new, before.as_ref()).await,
            Err((error, _)) => Err(error),
        }
    }

    /// Sets permission bits, from 0o400 (owner may read) to 0o001 (others may execute).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn chmod(&self, path: &str, mode: u16) -> Result<(), Error> {
        let request =
            |target: &RequestTarget| Encoded::new(&Request::Chmod(Chmod { mode, path: target.as_bytes() }));
        Change { files: self, name: "chmod", path }.make(request).await
    }

    /// Sets the size of a file. The server refuses an invalid size.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate(&self, path: &str, size: u64) -> Result<(), Error> {
        let offset = size.cast_signed();
        let fhandle = FileHandle::default();
        let request = |target: &RequestTarget| {
            Encoded::new(&Request::Truncate(Truncate { fhandle, offset, path: target.as_bytes() }))
        };
        Change { files: self, name: "truncate", path }.make(request).await
    }
}
