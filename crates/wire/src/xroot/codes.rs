//! Codes of the xroot protocol as open newtypes: requests, reply statuses, errors and subcodes.
//!
//! They are newtypes and not enums, so that a code without a name can be represented and answered
//! with its specific error.
//!
//! Source: xroot protocol 5.2.0, sections 1.5, 2.0, 3.2 and those of the requests with subcodes.

use crate::newtypes::codes;

codes! {
    /// `requestid` of a request header.
    RequestCode(u16) {
        AUTH = 3000 "kXR_auth",
        QUERY = 3001 "kXR_query",
        CHMOD = 3002 "kXR_chmod",
        CLOSE = 3003 "kXR_close",
        DIRLIST = 3004 "kXR_dirlist",
        GPFILE = 3005 "kXR_gpfile",
        PROTOCOL = 3006 "kXR_protocol",
        LOGIN = 3007 "kXR_login",
        MKDIR = 3008 "kXR_mkdir",
        MV = 3009 "kXR_mv",
        OPEN = 3010 "kXR_open",
        PING = 3011 "kXR_ping",
        CHKPOINT = 3012 "kXR_chkpoint",
        READ = 3013 "kXR_read",
        RM = 3014 "kXR_rm",
        RMDIR = 3015 "kXR_rmdir",
        SYNC = 3016 "kXR_sync",
        STAT = 3017 "kXR_stat",
        SET = 3018 "kXR_set",
        WRITE = 3019 "kXR_write",
        FATTR = 3020 "kXR_fattr",
        PREPARE = 3021 "kXR_prepare",
        STATX = 3022 "kXR_statx",
        ENDSESS = 3023 "kXR_endsess",
        BIND = 3024 "kXR_bind",
        READV = 3025 "kXR_readv",
        PGWRITE = 3026 "kXR_pgwrite",
        LOCATE = 3027 "kXR_locate",
        TRUNCATE = 3028 "kXR_truncate",
        SIGVER = 3029 "kXR_sigver",
        PGREAD = 3030 "kXR_pgread",
        WRITEV = 3031 "kXR_writev",
        CLONE = 3032 "kXR_clone",
    }
}

impl RequestCode {
    /// The smallest request code; `kXR_status` frames and security vectors contain
    /// `requestid - FIRST`.
    pub const FIRST: u16 = 3000;
    /// The largest request code of this protocol version.
    pub const LAST: u16 = 3032;

    /// Returns the code in the form of a `kXR_status` frame (`requestid - 3000`); `None` if it is
    /// out of range.
    #[must_use]
    pub const fn short(self) -> Option<u8> {
        let [high, low] = self.0.wrapping_sub(Self::FIRST).to_be_bytes();
        if high == 0 { Some(low) } else { None }
    }

    /// Reports whether this protocol version defines the request.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.name().is_some()
    }
}

codes! {
    /// `status` of a response header.
    Status(u16) {
        OK = 0 "kXR_ok",
        OKSOFAR = 4000 "kXR_oksofar",
        ATTN = 4001 "kXR_attn",
        AUTHMORE = 4002 "kXR_authmore",
        ERROR = 4003 "kXR_error",
        REDIRECT = 4004 "kXR_redirect",
        WAIT = 4005 "kXR_wait",
        WAITRESP = 4006 "kXR_waitresp",
        STATUS = 4007 "kXR_status",
    }
}

codes! {
    /// `errnum` of a `kXR_error` reply, and `rc` of an extended attribute.
    ErrorCode(u32) {
        ARG_INVALID = 3000 "kXR_ArgInvalid",
        ARG_MISSING = 3001 "kXR_ArgMissing",
        ARG_TOO_LONG = 3002 "kXR_ArgTooLong",
        FILE_LOCKED = 3003 "kXR_FileLocked",
        FILE_NOT_OPEN = 3004 "kXR_FileNotOpen",
        FS_ERROR = 3005 "kXR_FSError",
        INVALID_REQUEST = 3006 "kXR_InvalidRequest",
        IO_ERROR = 3007 "kXR_IOError",
        NO_MEMORY = 3008 "kXR_NoMemory",
        NO_SPACE = 3009 "kXR_NoSpace",
        NOT_AUTHORIZED = 3010 "kXR_NotAuthorized",
        NOT_FOUND = 3011 "kXR_NotFound",
        SERVER_ERROR = 3012 "kXR_ServerError",
        UNSUPPORTED = 3013 "kXR_Unsupported",
        NO_SERVER = 3014 "kXR_noserver",
        NOT_FILE = 3015 "kXR_NotFile",
        IS_DIRECTORY = 3016 "kXR_isDirectory",
        CANCELLED = 3017 "kXR_Cancelled",
        IT_EXISTS = 3018 "kXR_ItExists",
        CHKSUM_ERR = 3019 "kXR_ChkSumErr",
        IN_PROGRESS = 3020 "kXR_inProgress",
        OVER_QUOTA = 3021 "kXR_overQuota",
        SIGVER_ERR = 3022 "kXR_SigVerErr",
        DECRYPT_ERR = 3023 "kXR_DecryptErr",
        OVERLOADED = 3024 "kXR_Overloaded",
        FS_READ_ONLY = 3025 "kXR_fsReadOnly",
        BAD_PAYLOAD = 3026 "kXR_BadPayload",
        ATTR_NOT_FOUND = 3027 "kXR_AttrNotFound",
        TLS_REQUIRED = 3028 "kXR_TLSRequired",
        NO_REPLICAS = 3029 "kXR_noReplicas",
        AUTH_FAILED = 3030 "kXR_AuthFailed",
        IMPOSSIBLE = 3031 "kXR_Impossible",
        CONFLICT = 3032 "kXR_Conflict",
        TOO_MANY_ERRS = 3033 "kXR_TooManyErrs",
        REQ_TIMED_OUT = 3034 "kXR_ReqTimedOut",
        TIMER_EXPIRED = 3035 "kXR_TimerExpired",
        NO_ERROR_YET = 10000 "kXR_noErrorYet",
    }
}

codes! {
    /// `actnum` of a `kXR_attn` frame.
    AttnCode(u32) {
        ASYNCAB = 5000 "kXR_asyncab",
        ASYNCDI = 5001 "kXR_asyncdi",
        ASYNCMS = 5002 "kXR_asyncms",
        ASYNCRD = 5003 "kXR_asyncrd",
        ASYNCWT = 5004 "kXR_asyncwt",
        ASYNCAV = 5005 "kXR_asyncav",
        ASYNUNAV = 5006 "kXR_asynunav",
        ASYNCGO = 5007 "kXR_asyncgo",
        ASYNRESP = 5008 "kXR_asynresp",
    }
}

codes! {
    /// `infotype` of `kXR_query`.
    QueryType(u16) {
        STATS = 1 "kXR_QStats",
        PREP = 2 "kXR_QPrep",
        CKSUM = 3 "kXR_Qcksum",
        XATTR = 4 "kXR_Qxattr",
        SPACE = 5 "kXR_Qspace",
        CKSCAN = 6 "kXR_Qckscan",
        CONFIG = 7 "kXR_Qconfig",
        VISA = 8 "kXR_Qvisa",
        FINFO = 9 "kXR_QFinfo",
        FSINFO = 10 "kXR_QFSinfo",
        OPAQUE = 16 "kXR_Qopaque",
        OPAQUF = 32 "kXR_Qopaquf",
        OPAQUG = 64 "kXR_Qopaqug",
    }
}

codes! {
    /// `subcode` of `kXR_fattr`.
    FattrSubcode(u8) {
        DEL = 0 "kXR_fattrDel",
        GET = 1 "kXR_fattrGet",
        LIST = 2 "kXR_fattrList",
        SET = 3 "kXR_fattrSet",
    }
}

codes! {
    /// `opcode` of `kXR_chkpoint`.
    ChkpointOpcode(u8) {
        BEGIN = 0 "kXR_ckpBegin",
        COMMIT = 1 "kXR_ckpCommit",
        QUERY = 2 "kXR_ckpQuery",
        ROLLBACK = 3 "kXR_ckpRollback",
        XEQ = 4 "kXR_ckpXeq",
    }
}

codes! {
    /// Low nibble of `expect` of `kXR_protocol`: the next step that the client intends.
    Expect(u8) {
        NONE = 0 "kXR_ExpNone",
        BIND = 1 "kXR_ExpBind",
        GPF = 2 "kXR_ExpGPF",
        LOGIN = 3 "kXR_ExpLogin",
        TPC = 4 "kXR_ExpTPC",
        GPFA = 8 "kXR_ExpGPFA",
    }
}

codes! {
    /// `resptype` of a `kXR_status` frame.
    ResponseType(u8) {
        FINAL = 0 "kXR_FinalResult",
        PARTIAL = 1 "kXR_PartialResult",
        PROGRESS = 2 "kXR_ProgressInfo",
    }
}

codes! {
    /// `seclvl` of the security requirements in the `kXR_protocol` reply.
    SecurityLevel(u8) {
        NONE = 0 "kXR_secNone",
        COMPATIBLE = 1 "kXR_secCompatible",
        STANDARD = 2 "kXR_secStandard",
        INTENSE = 3 "kXR_secIntense",
        PEDANTIC = 4 "kXR_secPedantic",
    }
}

codes! {
    /// Requirement of a security level for one request: signature ignored, likely needed or needed.
    SignRequirement(u8) {
        IGNORE = 0 "kXR_signIgnore",
        LIKELY = 1 "kXR_signLikely",
        NEEDED = 2 "kXR_signNeeded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_requests_have_short_codes() {
        assert_eq!(RequestCode::PGWRITE.short(), Some(0x1a));
        assert_eq!(RequestCode::PGREAD.short(), Some(0x1e));
        assert_eq!(RequestCode(2999).short(), None);
        assert_eq!(RequestCode(3256).short(), None);
    }

    #[test]
    fn every_code_of_the_range_has_a_name() {
        for code in RequestCode::FIRST..=RequestCode::LAST {
            assert!(RequestCode(code).is_known(), "{code}");
        }
        for code in 3000..=3035 {
            assert!(ErrorCode(code).name().is_some(), "{code}");
        }
    }
}
