//! Requests: the enum of all requests, with one file per request.
//!
//! A server decodes a request from its header and the `dlen` bytes behind it; a client encodes one.
//! Decoding does not allocate: borrowed parts point into the payload.
//!
//! File data is not part of a message, because it may be large and is streamed by the owner of the
//! connection. This concerns the payload of `kXR_write` and `kXR_pgwrite`, and the bytes behind the
//! counted ones of `kXR_writev` and `kXR_chkpoint` xeq.

pub mod auth;
pub mod bind;
mod body;
pub mod chkpoint;
pub mod chmod;
pub mod clone;
pub mod close;
pub mod dirlist;
pub mod endsess;
pub mod fattr;
pub mod gpfile;
pub mod locate;
pub mod login;
pub mod mkdir;
pub mod mv;
pub mod open;
pub mod pgread;
pub mod pgwrite;
pub mod ping;
pub mod prepare;
pub mod protocol;
pub mod query;
pub mod read;
pub mod readv;
pub mod rm;
pub mod rmdir;
pub mod segments;
pub mod set;
pub mod sigver;
pub mod stat;
pub mod statx;
pub mod sync;
pub mod truncate;
pub mod unknown;
pub mod write;
pub mod writev;

pub use auth::Auth;
pub use bind::Bind;
pub use chkpoint::Chkpoint;
pub use chmod::Chmod;
pub use clone::CloneRanges;
pub use close::Close;
pub use dirlist::Dirlist;
pub use endsess::Endsess;
pub use fattr::Fattr;
pub use gpfile::Gpfile;
pub use locate::Locate;
pub use login::Login;
pub use mkdir::Mkdir;
pub use mv::Mv;
pub use open::Open;
pub use pgread::Pgread;
pub use pgwrite::Pgwrite;
pub use ping::Ping;
pub use prepare::Prepare;
pub use protocol::Protocol;
pub use query::Query;
pub use read::Read;
pub use readv::Readv;
pub use rm::Rm;
pub use rmdir::Rmdir;
pub use segments::{Segment, SegmentList};
pub use set::Set;
pub use sigver::Sigver;
pub use stat::Stat;
pub use statx::Statx;
pub use sync::Sync;
pub use truncate::Truncate;
pub use unknown::Unknown;
pub use write::Write;
pub use writev::Writev;

use super::codes::RequestCode;
use super::header::{RequestHeader, StreamId};
use crate::error::WireError;
use body::RequestBody;

/// Defines [`Request`] from a table of codes, variants and the types of their bodies.
macro_rules! requests {
    ($($(#[$meta:meta])* $code:ident => $name:ident($body:ty),)*) => {
        /// A request of the xroot protocol.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Request<'a> {
            $($(#[$meta])* $name($body),)*
            /// A request that this protocol version does not define.
            Unknown(Unknown<'a>),
        }

        impl<'a> Request<'a> {
            /// Decodes a request.
            ///
            /// `payload` is the `dlen` bytes behind the header. It is ignored for
            /// [`Request::Write`] and [`Request::Pgwrite`], whose payload is streamed. Reserved
            /// bytes and payloads of requests without arguments are ignored. Invalid values are
            /// passed on, because the session has a specific answer for each of them.
            ///
            /// # Errors
            /// [`WireError`] only for a request that cannot be represented: a `kXR_chkpoint` xeq
            /// whose embedded header does not have 24 bytes.
            pub fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
                Ok(match header.code {
                    $(RequestCode::$code => Self::$name(<$body>::decode(header, payload)?),)*
                    _ => Self::Unknown(Unknown::decode(header, payload)?),
                })
            }

            /// Appends the request: header and counted payload, without streamed data.
            pub fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
                let header = RequestHeader::new(streamid, self.code());
                match self {
                    $(Self::$name(body) => body.encode(header, out),)*
                    Self::Unknown(body) => body.encode(header, out),
                }
            }

            /// Returns the code of the request.
            #[must_use]
            pub const fn code(&self) -> RequestCode {
                match self {
                    $(Self::$name(_) => RequestCode::$code,)*
                    Self::Unknown(body) => body.code,
                }
            }
        }
    };
}

requests! {
    /// Carries credentials.
    AUTH => Auth(Auth<'a>),
    /// Binds the connection to a session.
    BIND => Bind(Bind),
    /// Operates on a checkpoint.
    CHKPOINT => Chkpoint(Chkpoint),
    /// Changes permission bits.
    CHMOD => Chmod(Chmod<'a>),
    /// Clones ranges.
    CLONE => Clone(CloneRanges<'a>),
    /// Closes a file.
    CLOSE => Close(Close),
    /// Lists a directory.
    DIRLIST => Dirlist(Dirlist<'a>),
    /// Ends a session.
    ENDSESS => Endsess(Endsess),
    /// Operates on extended attributes.
    FATTR => Fattr(Fattr<'a>),
    /// Gets or puts a file; not supported.
    GPFILE => Gpfile(Gpfile<'a>),
    /// Requests the locations of a path.
    LOCATE => Locate(Locate<'a>),
    /// Starts a session.
    LOGIN => Login(Login<'a>),
    /// Creates a directory.
    MKDIR => Mkdir(Mkdir<'a>),
    /// Renames a path.
    MV => Mv(Mv<'a>),
    /// Opens a file.
    OPEN => Open(Open<'a>),
    /// Reads with page checksums.
    PGREAD => Pgread(Pgread),
    /// Writes with page checksums.
    PGWRITE => Pgwrite(Pgwrite),
    /// Checks that the server is alive.
    PING => Ping(Ping),
    /// Stages files.
    PREPARE => Prepare(Prepare<'a>),
    /// Exchanges versions and abilities.
    PROTOCOL => Protocol(Protocol),
    /// Requests information.
    QUERY => Query(Query<'a>),
    /// Reads a range.
    READ => Read(Read<'a>),
    /// Reads several ranges.
    READV => Readv(Readv<'a>),
    /// Removes a file.
    RM => Rm(Rm<'a>),
    /// Removes a directory.
    RMDIR => Rmdir(Rmdir<'a>),
    /// Sets a property of the session.
    SET => Set(Set<'a>),
    /// Signs the next request.
    SIGVER => Sigver(Sigver<'a>),
    /// Requests a status.
    STAT => Stat(Stat<'a>),
    /// Requests the kinds of several paths.
    STATX => Statx(Statx<'a>),
    /// Flushes a file to stable storage.
    SYNC => Sync(Sync),
    /// Sets a size.
    TRUNCATE => Truncate(Truncate<'a>),
    /// Writes a range.
    WRITE => Write(Write),
    /// Writes several ranges.
    WRITEV => Writev(Writev<'a>),
}
