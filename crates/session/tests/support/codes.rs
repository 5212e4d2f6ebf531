//! Codes of the protocol as numbers, so that tests state them a second time.
//!
//! Source: xroot protocol 5.2.0, sections 1.5, 2.0 and 3.2.

pub const AUTH: u16 = 3000;
pub const QUERY: u16 = 3001;
pub const CHMOD: u16 = 3002;
pub const CLOSE: u16 = 3003;
pub const DIRLIST: u16 = 3004;
pub const GPFILE: u16 = 3005;
pub const PROTOCOL: u16 = 3006;
pub const LOGIN: u16 = 3007;
pub const MKDIR: u16 = 3008;
pub const MV: u16 = 3009;
pub const OPEN: u16 = 3010;
pub const PING: u16 = 3011;
pub const CHKPOINT: u16 = 3012;
pub const READ: u16 = 3013;
pub const RM: u16 = 3014;
pub const RMDIR: u16 = 3015;
pub const SYNC: u16 = 3016;
pub const STAT: u16 = 3017;
pub const SET: u16 = 3018;
pub const WRITE: u16 = 3019;
pub const FATTR: u16 = 3020;
pub const PREPARE: u16 = 3021;
pub const STATX: u16 = 3022;
pub const ENDSESS: u16 = 3023;
pub const BIND: u16 = 3024;
pub const READV: u16 = 3025;
pub const PGWRITE: u16 = 3026;
pub const LOCATE: u16 = 3027;
pub const TRUNCATE: u16 = 3028;
pub const SIGVER: u16 = 3029;
pub const PGREAD: u16 = 3030;
pub const WRITEV: u16 = 3031;
pub const CLONE: u16 = 3032;

pub const OK: u16 = 0;
pub const OKSOFAR: u16 = 4000;
pub const ATTN: u16 = 4001;
pub const AUTHMORE: u16 = 4002;
pub const ERROR: u16 = 4003;
pub const REDIRECT: u16 = 4004;
pub const WAIT: u16 = 4005;
pub const WAITRESP: u16 = 4006;
pub const STATUS: u16 = 4007;
