//! Changes of the name space of a [`FileSystem`].
//!
//! A request that could do more than was asked for if it were made twice is sent once: between both, another client may have
//! made a new file of that name. When its reply is lost, the server where it was made is asked what there is now. Where that
//! does not prove that it was carried out, the error is uncertain ([`Error::is_uncertain`]).

use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::flags::{MkdirOptions, StatOptions};
use wire::xroot::request::{Chmod, Mkdir, Mv, Request, Rm, Rmdir, Truncate};
use wire::xroot::{ErrorCode, FileHandle};

use crate::answers::StatInfo;
use crate::channel::BodyLimit;
use crate::client::Client;
use crate::encoded::Encoded;
use crate::failure::Error;
use crate::filesystem::{FileSystem, stat};
use crate::path::{RemotePath, RequestTarget};
use crate::route::{Ask, Repeat, Route};
use crate::url::Url;

/// Rounds of attempts to reach a server again that did not answer.
pub(crate) const ROUNDS_AGAIN: u64 = 4;
/// Time for asking it what there is.
const LOOK_TIME: Duration = Duration::from_secs(30);

/// The status of what `at` names, from that server and no other; `None` when there is nothing.
pub(crate) async fn look_at(client: &Client, at: &Url) -> Result<Option<StatInfo>, Error> {
    let end = Instant::now() + LOOK_TIME;
    let mut route = Route::back_to(client, at, at.clone(), ROUNDS_AGAIN, end);
    let request = |url: &Url, _: bool| stat(&url.target(), StatOptions::NONE);
    let ask = Ask {
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

/// An outcome that is uncertain because the server cannot be asked.
pub(crate) fn not_asked(error: Error, why: &Error) -> Error {
    error.afterwards(format!("its server cannot be asked ({})", why.cause()))
}

impl FileSystem {
    /// Changes something; making it twice does what making it once does.
    async fn change(
        &self,
        name: &'static str,
        path: &str,
        request: impl Fn(&RequestTarget) -> Encoded + Sync,
    ) -> Result<(), Error> {
        self.ask(name, path, true, |url, _| request(&url.target())).await.map(|_| ())
    }

    /// Changes something that is not changed twice. With an uncertain error comes where it was made.
    async fn change_once(
        &self,
        name: &'static str,
        path: &str,
        request: impl Fn(&Url, bool) -> Encoded + Sync,
    ) -> Result<(), (Error, Url)> {
        let url = self.url_of(name, path).map_err(|error| (error, self.url.clone()))?;
        let mut route = Route::new(&self.client, &url, self.client.end());
        let ask =
            Ask { name, repeat: Repeat::Never, slow: false, limit: BodyLimit::ANSWER, request: &request };
        let done = route.ask(&self.client, &ask).await;
        done.map(|_| ()).map_err(|error| (error, route.at))
    }

    /// Removes something. When the reply is lost, it counts as removed if it is gone.
    async fn remove(
        &self,
        name: &'static str,
        path: &str,
        request: impl Fn(&RequestTarget) -> Encoded + Sync,
    ) -> Result<(), Error> {
        let (error, at) = match self.change_once(name, path, |url, _| request(&url.target())).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !error.is_uncertain() {
            return Err(error);
        }
        match look_at(&self.client, &at).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(error.afterwards("something of that name is there")),
            Err(why) => Err(not_asked(error, &why)),
        }
    }

    /// Creates a directory and those above it; one that is there already will do, whatever its permissions are.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn mkdir_all(&self, path: &str, mode: u16) -> Result<(), Error> {
        match self.mkdir(path, mode, true).await {
            // Servers are content only with one of the same permissions.
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

    /// Creates a directory; with `parents` also those above it, and then one of the same permissions that is there already
    /// will do.
    ///
    /// # Errors
    /// [`Error`]. Without `parents` it is uncertain when the reply is lost, because nothing tells who made the directory.
    pub async fn mkdir(&self, path: &str, mode: u16, parents: bool) -> Result<(), Error> {
        let options = if parents { MkdirOptions::MKPATH } else { MkdirOptions::NONE };
        let request = |target: &RequestTarget| {
            Encoded::new(&Request::Mkdir(Mkdir { options, mode, path: target.as_bytes() }))
        };
        if parents {
            return self.change("mkdir", path, request).await;
        }
        let (error, at) = match self.change_once("mkdir", path, |url, _| request(&url.target())).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !error.is_uncertain() {
            return Err(error);
        }
        Err(match look_at(&self.client, &at).await {
            Ok(None) => error.afterwards("there is none of that name now"),
            Ok(Some(found)) if found.is_dir() => error.afterwards("there is a directory of that name"),
            Ok(Some(_)) => error.afterwards("there is a file of that name"),
            Err(why) => not_asked(error, &why),
        })
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error`], uncertain when the reply is lost and the file is still there, or its server does not answer.
    pub async fn rm(&self, path: &str) -> Result<(), Error> {
        let request = |target: &RequestTarget| Encoded::new(&Request::Rm(Rm { path: target.as_bytes() }));
        self.remove("rm", path, request).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error`], uncertain as that of [`FileSystem::rm`].
    pub async fn rmdir(&self, path: &str) -> Result<(), Error> {
        let request =
            |target: &RequestTarget| Encoded::new(&Request::Rmdir(Rmdir { path: target.as_bytes() }));
        self.remove("rmdir", path, request).await
    }

    /// Renames. An existing file of the new name is replaced.
    ///
    /// # Errors
    /// [`Error`], uncertain when the reply is lost and the server does not show the file under its new name.
    pub async fn mv(&self, old: &str, new: &str) -> Result<(), Error> {
        let new = self.url_of("mv", new)?.path;
        // Which file it is, in case that it has to be found again.
        let before = match self.stat(old).await {
            Err(error) if error.is_transient() => return Err(error),
            before => before.ok(),
        };
        let request = |url: &Url, _: bool| {
            // The cgi that servers on the way added belongs to both names.
            let (old, new) = (url.target(), url.target_of(&new));
            let arg1len = i16::try_from(old.as_bytes().len()).unwrap_or(0);
            let args = [old.as_bytes(), b" ", new.as_bytes()].concat();
            Encoded::new(&Request::Mv(Mv { arg1len, args: &args }))
        };
        match self.change_once("mv", old, request).await {
            Ok(()) => Ok(()),
            Err((error, at)) if error.is_uncertain() => self.moved(error, &at, &new, before.as_ref()).await,
            Err((error, _)) => Err(error),
        }
    }

    /// Finds out whether a rename whose reply was lost was carried out at the server `at`.
    async fn moved(
        &self,
        error: Error,
        at: &Url,
        new: &RemotePath,
        before: Option<&StatInfo>,
    ) -> Result<(), Error> {
        let (old, new) =
            match (look_at(&self.client, at).await, look_at(&self.client, &at.at(new.clone())).await) {
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

    /// Sets permission bits: 0o400 owner may read … 0o001 others may execute.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn chmod(&self, path: &str, mode: u16) -> Result<(), Error> {
        let request =
            |target: &RequestTarget| Encoded::new(&Request::Chmod(Chmod { mode, path: target.as_bytes() }));
        self.change("chmod", path, request).await
    }

    /// Sets the size of a file. One that no file can have is for the server to refuse.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate(&self, path: &str, size: u64) -> Result<(), Error> {
        let offset = size.cast_signed();
        let fhandle = FileHandle::default();
        let request = |target: &RequestTarget| {
            Encoded::new(&Request::Truncate(Truncate { fhandle, offset, path: target.as_bytes() }))
        };
        self.change("truncate", path, request).await
    }
}
