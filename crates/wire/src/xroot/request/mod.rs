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

/// A request of the xroot protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Carries credentials.
    Auth(Auth<'a>),
    /// Binds the connection to a session.
    Bind(Bind),
    /// Operates on a checkpoint.
    Chkpoint(Chkpoint),
    /// Changes permission bits.
    Chmod(Chmod<'a>),
    /// Clones ranges.
    Clone(CloneRanges<'a>),
    /// Closes a file.
    Close(Close),
    /// Lists a directory.
    Dirlist(Dirlist<'a>),
    /// Ends a session.
    Endsess(Endsess),
    /// Operates on extended attributes.
    Fattr(Fattr<'a>),
    /// Gets or puts a file; not supported.
    Gpfile(Gpfile<'a>),
    /// Requests the locations of a path.
    Locate(Locate<'a>),
    /// Starts a session.
    Login(Login<'a>),
    /// Creates a directory.
    Mkdir(Mkdir<'a>),
    /// Renames a path.
    Mv(Mv<'a>),
    /// Opens a file.
    Open(Open<'a>),
    /// Reads with page checksums.
    Pgread(Pgread),
    /// Writes with page checksums.
    Pgwrite(Pgwrite),
    /// Checks that the server is alive.
    Ping(Ping),
    /// Stages files.
    Prepare(Prepare<'a>),
    /// Exchanges versions and abilities.
    Protocol(Protocol),
    /// Requests information.
    Query(Query<'a>),
    /// Reads a range.
    Read(Read<'a>),
    /// Reads several ranges.
    Readv(Readv<'a>),
    /// Removes a file.
    Rm(Rm<'a>),
    /// Removes a directory.
    Rmdir(Rmdir<'a>),
    /// Sets a property of the session.
    Set(Set<'a>),
    /// Signs the next request.
    Sigver(Sigver<'a>),
    /// Requests a status.
    Stat(Stat<'a>),
    /// Requests the kinds of several paths.
    Statx(Statx<'a>),
    /// Flushes a file to stable storage.
    Sync(Sync),
    /// Sets a size.
    Truncate(Truncate<'a>),
    /// A request that this protocol version does not define.
    Unknown(Unknown<'a>),
    /// Writes a range.
    Write(Write),
    /// Writes several ranges.
    Writev(Writev<'a>),
}

impl<'a> Request<'a> {
    /// Decodes a request.
    ///
    /// `payload` is the `dlen` bytes behind the header. It is ignored for [`Request::Write`] and
    /// [`Request::Pgwrite`], whose payload is streamed. Reserved bytes and payloads of requests
    /// without arguments are ignored. Invalid values are passed on, because the session has a
    /// specific answer for each of them.
    ///
    /// # Errors
    /// [`WireError`] only for a request that cannot be represented: a `kXR_chkpoint` xeq whose
    /// embedded header does not have 24 bytes.
    pub fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(match header.code {
            RequestCode::AUTH => Self::Auth(Auth::decode(header, payload)),
            RequestCode::BIND => Self::Bind(Bind::decode(header)),
            RequestCode::CHKPOINT => Self::Chkpoint(Chkpoint::decode(header, payload)?),
            RequestCode::CHMOD => Self::Chmod(Chmod::decode(header, payload)),
            RequestCode::CLONE => Self::Clone(CloneRanges::decode(header, payload)),
            RequestCode::CLOSE => Self::Close(Close::decode(header)),
            RequestCode::DIRLIST => Self::Dirlist(Dirlist::decode(header, payload)),
            RequestCode::ENDSESS => Self::Endsess(Endsess::decode(header)),
            RequestCode::FATTR => Self::Fattr(Fattr::decode(header, payload)),
            RequestCode::GPFILE => Self::Gpfile(Gpfile::decode(header, payload)),
            RequestCode::LOCATE => Self::Locate(Locate::decode(header, payload)),
            RequestCode::LOGIN => Self::Login(Login::decode(header, payload)),
            RequestCode::MKDIR => Self::Mkdir(Mkdir::decode(header, payload)),
            RequestCode::MV => Self::Mv(Mv::decode(header, payload)),
            RequestCode::OPEN => Self::Open(Open::decode(header, payload)),
            RequestCode::PGREAD => Self::Pgread(Pgread::decode(header, payload)),
            RequestCode::PGWRITE => Self::Pgwrite(Pgwrite::decode(header)),
            RequestCode::PING => Self::Ping(Ping),
            RequestCode::PREPARE => Self::Prepare(Prepare::decode(header, payload)),
            RequestCode::PROTOCOL => Self::Protocol(Protocol::decode(header)),
            RequestCode::QUERY => Self::Query(Query::decode(header, payload)),
            RequestCode::READ => Self::Read(Read::decode(header, payload)),
            RequestCode::READV => Self::Readv(Readv::decode(header, payload)),
            RequestCode::RM => Self::Rm(Rm::decode(header, payload)),
            RequestCode::RMDIR => Self::Rmdir(Rmdir::decode(header, payload)),
            RequestCode::SET => Self::Set(Set::decode(header, payload)),
            RequestCode::SIGVER => Self::Sigver(Sigver::decode(header, payload)),
            RequestCode::STAT => Self::Stat(Stat::decode(header, payload)),
            RequestCode::STATX => Self::Statx(Statx::decode(header, payload)),
            RequestCode::SYNC => Self::Sync(Sync::decode(header)),
            RequestCode::TRUNCATE => Self::Truncate(Truncate::decode(header, payload)),
            RequestCode::WRITE => Self::Write(Write::decode(header)),
            RequestCode::WRITEV => Self::Writev(Writev::decode(header, payload)),
            _ => Self::Unknown(Unknown::decode(header, payload)),
        })
    }

    /// Appends the request: header and counted payload, without streamed data.
    pub fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        match self {
            Self::Auth(message) => message.encode(streamid, out),
            Self::Bind(message) => message.encode(streamid, out),
            Self::Chkpoint(message) => message.encode(streamid, out),
            Self::Chmod(message) => message.encode(streamid, out),
            Self::Clone(message) => message.encode(streamid, out),
            Self::Close(message) => message.encode(streamid, out),
            Self::Dirlist(message) => message.encode(streamid, out),
            Self::Endsess(message) => message.encode(streamid, out),
            Self::Fattr(message) => message.encode(streamid, out),
            Self::Gpfile(message) => message.encode(streamid, out),
            Self::Locate(message) => message.encode(streamid, out),
            Self::Login(message) => message.encode(streamid, out),
            Self::Mkdir(message) => message.encode(streamid, out),
            Self::Mv(message) => message.encode(streamid, out),
            Self::Open(message) => message.encode(streamid, out),
            Self::Pgread(message) => message.encode(streamid, out),
            Self::Pgwrite(message) => message.encode(streamid, out),
            Self::Ping(Ping) => Ping::encode(streamid, out),
            Self::Prepare(message) => message.encode(streamid, out),
            Self::Protocol(message) => message.encode(streamid, out),
            Self::Query(message) => message.encode(streamid, out),
            Self::Read(message) => message.encode(streamid, out),
            Self::Readv(message) => message.encode(streamid, out),
            Self::Rm(message) => message.encode(streamid, out),
            Self::Rmdir(message) => message.encode(streamid, out),
            Self::Set(message) => message.encode(streamid, out),
            Self::Sigver(message) => message.encode(streamid, out),
            Self::Stat(message) => message.encode(streamid, out),
            Self::Statx(message) => message.encode(streamid, out),
            Self::Sync(message) => message.encode(streamid, out),
            Self::Truncate(message) => message.encode(streamid, out),
            Self::Unknown(message) => message.encode(streamid, out),
            Self::Write(message) => message.encode(streamid, out),
            Self::Writev(message) => message.encode(streamid, out),
        }
    }

    /// Returns the code of the request.
    #[must_use]
    pub const fn code(&self) -> RequestCode {
        match self {
            Self::Auth(_) => RequestCode::AUTH,
            Self::Bind(_) => RequestCode::BIND,
            Self::Chkpoint(_) => RequestCode::CHKPOINT,
            Self::Chmod(_) => RequestCode::CHMOD,
            Self::Clone(_) => RequestCode::CLONE,
            Self::Close(_) => RequestCode::CLOSE,
            Self::Dirlist(_) => RequestCode::DIRLIST,
            Self::Endsess(_) => RequestCode::ENDSESS,
            Self::Fattr(_) => RequestCode::FATTR,
            Self::Gpfile(_) => RequestCode::GPFILE,
            Self::Locate(_) => RequestCode::LOCATE,
            Self::Login(_) => RequestCode::LOGIN,
            Self::Mkdir(_) => RequestCode::MKDIR,
            Self::Mv(_) => RequestCode::MV,
            Self::Open(_) => RequestCode::OPEN,
            Self::Pgread(_) => RequestCode::PGREAD,
            Self::Pgwrite(_) => RequestCode::PGWRITE,
            Self::Ping(_) => RequestCode::PING,
            Self::Prepare(_) => RequestCode::PREPARE,
            Self::Protocol(_) => RequestCode::PROTOCOL,
            Self::Query(_) => RequestCode::QUERY,
            Self::Read(_) => RequestCode::READ,
            Self::Readv(_) => RequestCode::READV,
            Self::Rm(_) => RequestCode::RM,
            Self::Rmdir(_) => RequestCode::RMDIR,
            Self::Set(_) => RequestCode::SET,
            Self::Sigver(_) => RequestCode::SIGVER,
            Self::Stat(_) => RequestCode::STAT,
            Self::Statx(_) => RequestCode::STATX,
            Self::Sync(_) => RequestCode::SYNC,
            Self::Truncate(_) => RequestCode::TRUNCATE,
            Self::Unknown(message) => message.code,
            Self::Write(_) => RequestCode::WRITE,
            Self::Writev(_) => RequestCode::WRITEV,
        }
    }
}
