//! Fuzz targets: a function over arbitrary bytes for every family of decoders, and for the session machine.
//!
//! A target panics when what it checks does not hold: decoding is total, what was decoded survives encoding, two readers of
//! the same text agree, a machine keeps its promises whatever order things come in. The functions are ordinary ones:
//!
//! * `cargo test -p fuzz` runs each over its corpus: the seeds that [`seeds`] makes of the recorded exchanges, and the files
//!   in `corpus/<target>/`, which are written by hand or were found by a fuzzer;
//! * `checks/fuzz/run MINUTES` builds them with coverage feedback under libFuzzer (the workspace `libfuzzer` here, kept out
//!   of the main one because ordinary builds must not need a C++ compiler) and runs each for its share of the time.
//!
//! | target              | what is fed                                        |
//! |---------------------|----------------------------------------------------|
//! | `requests`          | a request frame; a stream of them                  |
//! | `replies`           | a response frame; a stream of them; bodies         |
//! | `archives`          | a ZIP archive                                      |
//! | `cgi`               | `path?cgi`, login texts                            |
//! | `cms`               | a frame between cluster nodes; a stream of them    |
//! | `metalinks`         | a metalink                                         |
//! | `paths`             | a logical path                                     |
//! | `configuration`     | a configuration file                               |
//! | `sessions`          | a list of operations on the session machine        |
//! | `journals`          | what an earlier run left to be put right at start  |
//! | `stored_attributes` | what the server itself stores beside a file        |

pub mod archives;
pub mod cgi;
pub mod cms;
pub mod configuration;
pub mod journals;
pub mod metalinks;
pub mod paths;
pub mod replies;
pub mod requests;
pub mod seeds;
pub mod sessions;
pub mod stored_attributes;

/// A target: its name, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, under the names of their corpus folders and libFuzzer programs.
pub const TARGETS: &[Target] = &[
    ("archives", archives::target),
    ("cgi", cgi::target),
    ("cms", cms::target),
    ("configuration", configuration::target),
    ("journals", journals::target),
    ("metalinks", metalinks::target),
    ("paths", paths::target),
    ("replies", replies::target),
    ("requests", requests::target),
    ("sessions", sessions::target),
    ("stored_attributes", stored_attributes::target),
];
