//! The table of error codes.
//!
//! It is written down a second time here, because clients depend on each code. It has the error
//! numbers of the operating system, and the conditions without one.

use base::ErrorKind;

/// Error number of Linux, code.
const NUMBERS: [(i32, u32); 38] = [
    (22, 3000),  // EINVAL
    (36, 3002),  // ENAMETOOLONG
    (9, 3004),   // EBADF
    (19, 3005),  // ENODEV
    (56, 3006),  // EBADRQC
    (5, 3007),   // EIO
    (12, 3008),  // ENOMEM
    (105, 3008), // ENOBUFS
    (28, 3009),  // ENOSPC
    (1, 3010),   // EPERM
    (13, 3010),  // EACCES
    (2, 3011),   // ENOENT
    (14, 3012),  // EFAULT
    (95, 3013),  // ENOTSUP
    (101, 3014), // ENETUNREACH
    (113, 3014), // EHOSTUNREACH
    (111, 3014), // ECONNREFUSED
    (15, 3015),  // ENOTBLK
    (21, 3016),  // EISDIR
    (125, 3017), // ECANCELED
    (17, 3018),  // EEXIST
    (39, 3018),  // ENOTEMPTY
    (33, 3019),  // EDOM
    (26, 3020),  // ETXTBSY
    (122, 3021), // EDQUOT
    (84, 3022),  // EILSEQ
    (34, 3023),  // ERANGE
    (87, 3024),  // EUSERS
    (30, 3025),  // EROFS
    (61, 3027),  // ENODATA
    (91, 3028),  // EPROTOTYPE
    (99, 3029),  // EADDRNOTAVAIL
    (52, 3030),  // EBADE
    (43, 3031),  // EIDRM
    (25, 3032),  // ENOTTY
    (109, 3033), // ETOOMANYREFS
    (110, 3034), // ETIMEDOUT
    (62, 3035),  // ETIME
];

/// Error numbers that the table of the protocol covers by "every number that is not listed".
const UNLISTED: [i32; 4] = [20, 29, 18, 40]; // ENOTDIR ESPIPE EXDEV ELOOP

/// Conditions of the protocol without an error number of a file system.
const CONDITIONS: [(ErrorKind, u32); 5] = [
    (ErrorKind::ArgMissing, 3001),
    (ErrorKind::FileLocked, 3003),
    (ErrorKind::BadPayload, 3026),
    (ErrorKind::RequestTimedOut, 3034),
    (ErrorKind::TimerExpired, 3035),
];

#[test]
fn every_error_number_has_its_code() {
    for (number, code) in NUMBERS {
        assert_eq!(session::wire_code(ErrorKind::from_errno(number)).0, code, "error number {number}");
    }
    for number in UNLISTED {
        assert_eq!(session::wire_code(ErrorKind::from_errno(number)).0, 3005, "error number {number}");
    }
}

#[test]
fn every_condition_has_its_code() {
    for (kind, code) in CONDITIONS {
        assert_eq!(session::wire_code(kind).0, code, "{kind:?}");
    }
}
