//! Fuzz targets for each family of decoders and for the session state machine.
//!
//! A target is a function over arbitrary bytes that panics if a property is violated. Decoding
//! never panics, decoded messages survive encoding, and two parsers of the same text agree. A state
//! machine keeps its invariants for any order of events. The functions are ordinary functions, so
//! that two programs can run them:
//!
//! * `cargo test -p fuzz` runs each target over its corpus. It consists of the seeds that [`seeds`]
//!   derives from the recorded exchanges and of the files in `corpus/<target>/`, which were written
//!   by hand or found by a fuzzer.
//! * `checks/fuzz/run MINUTES` builds them with coverage feedback under libFuzzer and divides the
//!   time among them. The workspace `libfuzzer` is separate from the main one, because ordinary
//!   builds must not need a C++ compiler.
//!
//! | target              | input                                             |
//! |---------------------|---------------------------------------------------|
//! | `requests`          | a request frame; a stream of them                 |
//! | `replies`           | a response frame; a stream of them; bodies        |
//! | `authdb`            | an authorization database                         |
//! | `archives`          | a ZIP archive                                     |
//! | `cgi`               | `path?cgi`, login texts                           |
//! | `cinfo_files`       | the state file of a cached file                   |
//! | `cms`               | a frame between cluster nodes; a stream of them   |
//! | `grid_chains`       | grid certificates, revocation lists, grid maps, policies of authorities |
//! | `macaroons`         | macaroons, their caveats, secrets, credentials of `ztn` |
//! | `krb5_messages`     | credentials of `krb5`, offers of servers          |
//! | `metalinks`         | a metalink                                        |
//! | `monitoring`        | a packet of detailed monitoring                   |
//! | `paths`             | a logical path                                    |
//! | `configuration`     | a configuration file                              |
//! | `sessions`          | a list of operations on the session state machine |
//! | `journals`          | journals of an earlier run                        |
//! | `credentials`       | credentials of `sss` and `unix`, lists of protocols |
//! | `http_bodies`       | requests for macaroons, requests of the tape API   |
//! | `http_copies`       | headers of third-party copies over HTTP            |
//! | `http_replies`      | ranges and listings of HTTP servers               |
//! | `http_requests`     | ranges, targets and destinations of HTTP requests |
//! | `keytabs`           | a key table of `sss`                              |
//! | `tokens`            | bearer tokens, their claims, credentials of `ztn` |
//! | `key_sets`          | the keys of a token issuer                        |
//! | `gsi_messages`      | messages of `gsi`, key agreements, parameters of servers |
//! | `pwd_messages`      | messages of `pwd`, files of passwords |
//! | `issuer_files`      | issuer files and map files of tokens              |
//! | `voms_maps`         | maps of groups of VOMS to users                   |
//! | `voms_signers`      | names of the signers of VOMS attributes           |
//! | `stored_attributes` | extended attributes that the server stores        |

pub mod archives;
pub mod authdb;
pub mod cgi;
pub mod cinfo_files;
pub mod cms;
pub mod configuration;
pub mod credentials;
pub mod grid_chains;
pub mod gsi_messages;
pub mod http_bodies;
pub mod http_copies;
pub mod http_replies;
pub mod http_requests;
pub mod issuer_files;
pub mod journals;
pub mod key_sets;
pub mod keytabs;
pub mod krb5_messages;
pub mod macaroons;
pub mod metalinks;
pub mod monitoring;
pub mod paths;
pub mod pwd_messages;
pub mod replies;
pub mod requests;
pub mod seeds;
pub mod sessions;
pub mod stored_attributes;
pub mod tokens;
pub mod voms_maps;
pub mod voms_signers;

/// The name and the function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, under the names of their corpus directories and libFuzzer programs.
pub const TARGETS: &[Target] = &[
    ("archives", archives::target),
    ("authdb", authdb::target),
    ("cgi", cgi::target),
    ("cinfo_files", cinfo_files::target),
    ("cms", cms::target),
    ("configuration", configuration::target),
    ("credentials", credentials::target),
    ("grid_chains", grid_chains::target),
    ("gsi_messages", gsi_messages::target),
    ("http_bodies", http_bodies::target),
    ("http_copies", http_copies::target),
    ("http_replies", http_replies::target),
    ("http_requests", http_requests::target),
    ("issuer_files", issuer_files::target),
    ("journals", journals::target),
    ("key_sets", key_sets::target),
    ("keytabs", keytabs::target),
    ("krb5_messages", krb5_messages::target),
    ("macaroons", macaroons::target),
    ("metalinks", metalinks::target),
    ("monitoring", monitoring::target),
    ("paths", paths::target),
    ("pwd_messages", pwd_messages::target),
    ("replies", replies::target),
    ("requests", requests::target),
    ("sessions", sessions::target),
    ("stored_attributes", stored_attributes::target),
    ("tokens", tokens::target),
    ("voms_maps", voms_maps::target),
    ("voms_signers", voms_signers::target),
];
