//! Distinguishes directories at a server from links to directories.
//!
//! The status follows links, so a walk that removes or writes could otherwise leave its tree.

use wire::xroot::ErrorCode;

use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;

/// The result of an attempt to remove a directory as an empty one.
pub(super) enum Probed {
    /// It is a directory with entries.
    Directory,
    /// It was empty and is removed now, or it did not exist.
    Gone,
    /// It is a link, or the server refuses for another reason.
    Refused(Box<Error>),
}

pub(super) async fn probe(files: &FileSystem, path: &str) -> Probed {
    let error = match files.rmdir(path).await {
        Ok(()) => return Probed::Gone,
        Err(error) if error.is_not_found() => return Probed::Gone,
        Err(error) => error,
    };
    match error.cause() {
        Cause::Server { code: ErrorCode::IT_EXISTS, .. }
            if files.url().is_http() && !files.url().is_object() =>
        {
            let text = "it is not empty, and HTTP does not show whether it is a link; use root://, remove what is in it first, or \
                        use scalla sync with --allow-links";
            let target = error.failure().target.clone();
            Probed::Refused(Box::new(Error::new("rm", target, Cause::NotEntered(text.to_owned()))))
        }
        Cause::Server { code: ErrorCode::IT_EXISTS, .. } => Probed::Directory,
        Cause::Server { text, .. } if text.to_ascii_lowercase().contains("not empty") => Probed::Directory,
        Cause::Server { text, .. } if text.to_ascii_lowercase().contains("not a directory") => {
            let text = "it is a link to a directory; what it leads to is left alone".to_owned();
            Probed::Refused(Box::new(Error::new(
                "rm",
                error.failure().target.clone(),
                Cause::NotEntered(text),
            )))
        }
        _ => Probed::Refused(Box::new(error)),
    }
}

/// Reports whether a directory with entries is a directory at the server, not a link to one.
///
/// # Errors
/// [`Error`] if it is a link or the server does not answer.
pub(crate) async fn is_own_directory(files: &FileSystem, path: &str) -> Result<(), Error> {
    match probe(files, path).await {
        Probed::Directory => Ok(()),
        // Another client has removed the entries in the meantime.
        Probed::Gone => files.mkdir_all(path, 0o755).await,
        Probed::Refused(error) => Err(*error),
    }
}
