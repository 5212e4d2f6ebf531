//! Flag words of the xroot protocol, one type per field.
//!
//! Each field has its own type, because the same bit has a different meaning in each request.
//!
//! Source: xroot protocol 5.2.0; each type names its section.

use crate::newtypes::flags;

flags! {
    /// `flags` of the `kXR_protocol` request (section 1.7).
    ProtocolFlags(u8) {
        SECREQS = 0x01 "secreqs", "return the security requirements (S body)";
        ABLE_TLS = 0x02 "ableTLS", "the client supports TLS";
        WANT_TLS = 0x04 "wantTLS", "switch to TLS right after the reply";
        BIFREQS = 0x08 "bifreqs", "return the bind interfaces (B body)";
    }
}

flags! {
    /// `flags` of the `kXR_protocol` reply (section 1.7); some are also used in redirect ports.
    ServerFlags(u32) {
        IS_SERVER = 0x0000_0001 "isServer", "data server";
        IS_MANAGER = 0x0000_0002 "isManager", "redirector";
        ATTR_CACHE = 0x0000_0080 "attrCache", "caching proxy";
        ATTR_META = 0x0000_0100 "attrMeta", "meta manager";
        ATTR_PROXY = 0x0000_0200 "attrProxy", "proxy server";
        ATTR_SUPER = 0x0000_0400 "attrSuper", "supervisor";
        ATTR_VIRT_RDR = 0x0000_0800 "attrVirtRdr", "virtual redirector";
        RECOVER_WRTS = 0x0000_1000 "recoverWrts", "failed writes may be retried through this manager";
        COLLAPSE_REDIR = 0x0000_2000 "collapseRedir", "the target replaces the redirector";
        EC_REDIR = 0x0000_4000 "ecRedir", "redirect of an erasure-coded file";
        SUPPOSC = 0x0010_0000 "supposc", "persist on successful close is supported";
        SUPPGRW = 0x0020_0000 "suppgrw", "pgread and pgwrite are supported";
        SUPGPF = 0x0040_0000 "supgpf", "gpfile is supported";
        ANONGPF = 0x0080_0000 "anongpf", "anonymous gpfile is supported";
        TLS_DATA = 0x0100_0000 "tlsData", "TLS is required on bound connections";
        TLS_GPF = 0x0200_0000 "tlsGPF", "TLS is required for gpfile";
        TLS_LOGIN = 0x0400_0000 "tlsLogin", "TLS is required before login";
        TLS_SESS = 0x0800_0000 "tlsSess", "TLS starts after login or authentication";
        TLS_TPC = 0x1000_0000 "tlsTPC", "TLS is required for third-party copies";
        TLS_GPFA = 0x2000_0000 "tlsGPFA", "TLS is required for anonymous gpfile";
        GOTO_TLS = 0x4000_0000 "gotoTLS", "this connection switches to TLS now";
        HAVE_TLS = 0x8000_0000 "haveTLS", "the server supports TLS";
    }
}

impl ServerFlags {
    /// All bits that require TLS.
    pub const TLS_ANY: Self = Self(0x1f00_0000);
}

flags! {
    /// `ability` of `kXR_login` (section 1.7).
    Ability(u8) {
        FULLURL = 0x01 "fullurl", "understands redirects to URLs";
        MULTIPR = 0x03 "multipr", "can be redirected to other protocols; implies fullurl";
        READRDOK = 0x04 "readrdok", "accepts a redirect in answer to a read";
        HASIPV64 = 0x08 "hasipv64", "has IPv4 and IPv6 addresses";
        ONLYPRV4 = 0x10 "onlyprv4", "has a private IPv4 address only";
        ONLYPRV6 = 0x20 "onlyprv6", "has a private IPv6 address only";
        LCLFILE = 0x40 "lclfile", "accepts a redirect to a local file";
        REDIRFLAGS = 0x80 "redirflags", "understands flags in a negative redirect port";
    }
}

flags! {
    /// `ability2` of `kXR_login` (section 1.7).
    Ability2(u8) {
        ECREDIR = 0x01 "ecredir", "accepts erasure-code redirects";
    }
}

flags! {
    /// Options of `kXR_open` (section 2.12).
    OpenOptions(u16) {
        COMPRESS = 0x0001 "compress", "return compression information";
        DELETE = 0x0002 "delete", "truncate or create";
        FORCE = 0x0004 "force", "ignore the reader/writer lock";
        NEW = 0x0008 "new", "the file must not exist";
        READ = 0x0010 "open_read", "read";
        UPDT = 0x0020 "open_updt", "read and write";
        ASYNC = 0x0040 "async", "asynchronous I/O; with new or delete also mkpath";
        REFRESH = 0x0080 "refresh", "a manager ignores cached locations";
        MKPATH = 0x0100 "mkpath", "create missing parent directories";
        APND = 0x0200 "open_apnd", "append";
        RETSTAT = 0x0400 "retstat", "append the stat text to the reply";
        REPLICA = 0x0800 "replica", "the file is a replica";
        POSC = 0x1000 "posc", "persist on successful close";
        NOWAIT = 0x2000 "nowait", "do not wait for staging";
        SEQIO = 0x4000 "seqio", "access will be sequential";
        WRTO = 0x8000 "open_wrto", "write only";
    }
}

flags! {
    /// `optiont` of `kXR_open` (section 2.12).
    OpenTemplateOptions(u16) {
        DUP = 0x0001 "dup", "the new file starts as a clone of the template";
        SAMEFS = 0x0002 "samefs", "place the new file beside the template";
        RETSTATX = 0x0004 "retstatx", "append the extended stat text to the reply";
        DIRECTIO = 0x0008 "directio", "bypass the page cache";
    }
}

flags! {
    /// Options of `kXR_dirlist` (section 2.7).
    DirlistOptions(u8) {
        ONLINE = 0x01 "online", "only entries that need no staging";
        DSTAT = 0x02 "dstat", "append a stat line to each entry";
        DCKSM = 0x04 "dcksm", "append a stat line with the cached checksum";
        DSTATX = 0x08 "dstatx", "extended stat where available";
    }
}

flags! {
    /// Options of `kXR_stat` and `kXR_statx` (sections 2.21, 2.22).
    StatOptions(u8) {
        VFS = 0x01 "vfs", "report the file system of the path";
    }
}

flags! {
    /// `wants` of `kXR_stat` (section 2.21).
    StatWants(u32) {
        BTIME = 0x0000_0001 "btime", "birth time";
    }
}

flags! {
    /// The flags number of a stat text (section 2.26).
    StatFlags(u32) {
        XSET = 0x001 "xset", "executable or searchable";
        IS_DIR = 0x002 "isDir", "directory";
        OTHER = 0x004 "other", "neither file nor directory";
        OFFLINE = 0x008 "offline", "not on disk";
        READABLE = 0x010 "readable", "the server may read it";
        WRITABLE = 0x020 "writable", "the server may write it";
        POSCPEND = 0x040 "poscpend", "persist on successful close is pending";
        BKPEXIST = 0x080 "bkpexist", "a backup exists";
        CACHE_RESP = 0x200 "cacheResp", "answered by a cache";
    }
}

flags! {
    /// Options of `kXR_locate` (section 2.9).
    LocateOptions(u16) {
        COMPRESS = 0x0001 "compress", "unique hosts only";
        FORCE = 0x0004 "force";
        REFRESH = 0x0080 "refresh", "discard cached locations";
        PREFNAME = 0x0100 "prefname", "host names instead of addresses";
        FOR_DIRLIST = 0x0400 "4dirlist", "the client lists the directory afterwards";
        NOWAIT = 0x2000 "nowait", "answer with the locations known now";
    }
}

flags! {
    /// Options of `kXR_mkdir` (section 2.10).
    MkdirOptions(u8) {
        MKPATH = 0x01 "mkpath", "create missing parent directories";
    }
}

flags! {
    /// Options of `kXR_prepare` (section 2.15).
    PrepareOptions(u8) {
        CANCEL = 0x01 "cancel", "cancel a request id";
        NOTIFY = 0x02 "notify", "send a message when done";
        NOERRS = 0x04 "noerrs", "do not notify of errors";
        STAGE = 0x08 "stage", "stage the files; the reply contains a request id";
        WMODE = 0x10 "wmode", "the file will be written";
        COLOC = 0x20 "coloc", "co-locate with the first file";
        FRESH = 0x40 "fresh", "refresh the access time";
        USETCP = 0x80 "usetcp", "notify by TCP";
    }
}

flags! {
    /// `optionX` of `kXR_prepare` (section 2.15).
    PrepareOptionsX(u16) {
        EVICT = 0x0001 "evict", "the file is no longer needed";
    }
}

flags! {
    /// Options of `kXR_fattr` (section 2.8).
    FattrOptions(u8) {
        IS_NEW = 0x01 "isNew", "set only attributes that do not exist";
        ADATA = 0x10 "aData", "list returns values";
    }
}

flags! {
    /// `reqflags` of `kXR_pgread` and `kXR_pgwrite` (sections 2.13, 2.14).
    PageFlags(u8) {
        RETRY = 0x01 "retry", "repeats a page that failed its checksum";
    }
}

flags! {
    /// Options of `kXR_writev` (section 2.28).
    WritevOptions(u8) {
        DO_SYNC = 0x01 "doSync", "sync after the write";
    }
}

flags! {
    /// `flags` of `kXR_sigver` (section 1.11).
    SigverFlags(u8) {
        NODATA = 0x01 "nodata", "the payload is not hashed";
    }
}

flags! {
    /// `crypto` of `kXR_sigver` (section 1.11).
    SigverCrypto(u8) {
        SHA256 = 0x01 "SHA256";
        RSA_KEY = 0x80 "rsaKey", "an RSA key was used";
    }
}

flags! {
    /// `secopt` of the security requirements in the `kXR_protocol` reply (section 1.7).
    SecurityOptions(u8) {
        DATA = 0x01 "secOData", "the payload of writes is hashed as well";
        FORCE = 0x02 "secOFrce", "sign even without a session key";
    }
}
