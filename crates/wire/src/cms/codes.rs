//! Codes of the cms protocol as open newtypes: messages, responses and errors.
//!
//! They are newtypes and not enums, so that a code without a name is kept and can be relayed or
//! logged.
//!
//! Source: cms protocol version 3, sections 1.3, 1.6. Codes from 224 are Scalla extensions
//! ([`super::extensions`]).

use crate::newtypes::codes;
use crate::xroot;

codes! {
    /// `rrCode` of all frames except responses to a redirector ([`ResponseCode`]).
    Code(u8) {
        LOGIN = 0 "login",
        CHMOD = 1 "chmod",
        LOCATE = 2 "locate",
        MKDIR = 3 "mkdir",
        MKPATH = 4 "mkpath",
        MV = 5 "mv",
        PREPADD = 6 "prepadd",
        PREPDEL = 7 "prepdel",
        RM = 8 "rm",
        RMDIR = 9 "rmdir",
        SELECT = 10 "select",
        STATS = 11 "stats",
        AVAIL = 12 "avail",
        DISC = 13 "disc",
        GONE = 14 "gone",
        HAVE = 15 "have",
        LOAD = 16 "load",
        PING = 17 "ping",
        PONG = 18 "pong",
        SPACE = 19 "space",
        STATE = 20 "state",
        STATFS = 21 "statfs",
        STATUS = 22 "status",
        TRUNC = 23 "trunc",
        TRY = 24 "try",
        UPDATE = 25 "update",
        USAGE = 26 "usage",
        XAUTH = 27 "xauth",
        NOT_HERE = 224 "nothere",
        OCCUPANCY = 225 "occupancy",
        INVENTORY = 226 "inventory",
        LEASE = 227 "lease",
    }
}

codes! {
    /// `rrCode` of a response to a redirector, and of the frames that replace a login reply.
    ResponseCode(u8) {
        DATA = 0 "data",
        ERROR = 1 "error",
        REDIRECT = 2 "redirect",
        WAIT = 3 "wait",
        WAITRESP = 4 "waitresp",
        YAUTH = 5 "yauth",
    }
}

impl ResponseCode {
    /// The largest response code. In frames to a redirector, a larger `rrCode` is a [`Code`].
    pub const LAST: u8 = 5;
}

codes! {
    /// `value` of an `error` response.
    ErrorCode(u32) {
        NO_ENTRY = 1 "ENOENT",
        NOT_PERMITTED = 2 "EPERM",
        NO_ACCESS = 3 "EACCES",
        INVALID = 4 "EINVAL",
        IO_ERROR = 5 "EIO",
        NO_MEMORY = 6 "ENOMEM",
        NO_SPACE = 7 "ENOSPC",
        NAME_TOO_LONG = 8 "ENAMETOOLONG",
        NET_UNREACHABLE = 9 "ENETUNREACH",
        NOT_BLOCK_DEVICE = 10 "ENOTBLK",
        IS_DIRECTORY = 11 "EISDIR",
        FS_ERROR = 12 "FSError",
        SERVER_ERROR = 13 "SrvError",
        RW_CONFLICT = 14 "RWConflict",
        NO_REPLICAS = 15 "noReplicas",
    }
}

/// For each error: its code, the Linux `errno` that a redirector derives from it, and the error of
/// the redirector's client.
const ERRORS: [(ErrorCode, i32, xroot::ErrorCode); 15] = [
    (ErrorCode::NO_ENTRY, 2, xroot::ErrorCode::NOT_FOUND),
    (ErrorCode::NOT_PERMITTED, 1, xroot::ErrorCode::NOT_AUTHORIZED),
    (ErrorCode::NO_ACCESS, 13, xroot::ErrorCode::NOT_AUTHORIZED),
    (ErrorCode::INVALID, 22, xroot::ErrorCode::ARG_INVALID),
    (ErrorCode::IO_ERROR, 5, xroot::ErrorCode::IO_ERROR),
    (ErrorCode::NO_MEMORY, 12, xroot::ErrorCode::NO_MEMORY),
    (ErrorCode::NO_SPACE, 28, xroot::ErrorCode::NO_SPACE),
    (ErrorCode::NAME_TOO_LONG, 36, xroot::ErrorCode::ARG_TOO_LONG),
    (ErrorCode::NET_UNREACHABLE, 101, xroot::ErrorCode::NO_SERVER),
    (ErrorCode::NOT_BLOCK_DEVICE, 15, xroot::ErrorCode::NOT_FILE),
    (ErrorCode::IS_DIRECTORY, 21, xroot::ErrorCode::IS_DIRECTORY),
    (ErrorCode::FS_ERROR, 19, xroot::ErrorCode::FS_ERROR),
    (ErrorCode::SERVER_ERROR, 14, xroot::ErrorCode::SERVER_ERROR),
    (ErrorCode::RW_CONFLICT, 17, xroot::ErrorCode::IT_EXISTS),
    (ErrorCode::NO_REPLICAS, 99, xroot::ErrorCode::NO_REPLICAS),
];

impl ErrorCode {
    /// Returns the Linux `errno` that a redirector derives from the code: `ENODEV` for 0, `EINVAL`
    /// for a code without a name.
    #[must_use]
    pub fn errno(self) -> i32 {
        self.known().1
    }

    /// Returns the error that the redirector's client receives.
    #[must_use]
    pub fn to_xroot(self) -> xroot::ErrorCode {
        self.known().2
    }

    /// Returns the code for a Linux `errno`; `IO_ERROR` if there is no specific code.
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        ERRORS.into_iter().find(|known| known.1 == errno).map_or(Self::IO_ERROR, |known| known.0)
    }

    fn known(self) -> (Self, i32, xroot::ErrorCode) {
        // Code 0 becomes a file system error at the client, every other unnamed code an invalid
        // argument.
        let instead = if self.0 == 0 { Self::FS_ERROR } else { Self::INVALID };
        let find = |code| ERRORS.into_iter().find(|known| known.0 == code);
        find(self).or_else(|| find(instead)).unwrap_or((self, 22, xroot::ErrorCode::ARG_INVALID))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_errors_match_the_recording() {
        let seen: Vec<_> = (0..=16).map(|code| ErrorCode(code).to_xroot().0).collect();
        assert_eq!(
            seen,
            [
                3005, 3011, 3010, 3010, 3000, 3007, 3008, 3009, 3002, 3014, 3015, 3016, 3005, 3012, 3018,
                3029, 3000
            ]
        );
        assert_eq!((ErrorCode(0).errno(), ErrorCode(16).errno()), (19, 22));
    }

    #[test]
    fn codes_and_errno_values_convert_both_ways() {
        for code in (1..=15).map(ErrorCode) {
            assert!(code.name().is_some());
            assert_eq!(ErrorCode::from_errno(code.errno()), code);
        }
        assert_eq!(ErrorCode::from_errno(4), ErrorCode::IO_ERROR);
    }
}
