//! Authentication of users: the protocols of both sides as state machines without sockets.
//!
//! A server configures its [`ServerProtocol`]s, sends their list with the reply to a login, and
//! drives one [`ServerLogin`] per exchange until it returns an [`Entity`]. A client parses the list
//! with [`offered_protocols`] and drives a [`ClientLogin`] of a [`ClientProtocol`] that it supports.
//!
//! | file       | contents                                                               |
//! |------------|------------------------------------------------------------------------|
//! | `access`   | authorization by macaroons, tokens and the rules of a file               |
//! | `accounts` | [`AccountDatabase`]: users and groups of the system                    |
//! | `age`      | time spans in messages for users                                       |
//! | `client`   | [`ClientLogin`], [`ClientProtocol`]: the client's side of an exchange  |
//! | `entity`   | [`Entity`]: the identity that authorization decides about              |
//! | `entity_map` | [`EntityMap`]: users and groups by a file of rules                    |
//! | `export_record` | [`ExportRecords`]: what lets the next process remove exported files |
//! | `exported_file` | [`ExportedFile`]: delegated credentials in files                   |
//! | `grid`     | verification of grid certificate chains with proxies, grid map files      |
//! | `gsi`      | the protocol `gsi`: certificates of grids                              |
//! | `host`     | the protocol `host`                                                    |
//! | `identity_text` | the line by which a server reports an identity to its client      |
//! | `krb5`     | the protocol `krb5`: tickets of Kerberos                                |
//! | `macaroons` | authorization by macaroons                                             |
//! | `offers`   | [`OfferedProtocol`]: the list of protocols in the reply to a login     |
//! | `patterns` | [`PeerHostPattern`]: patterns of hosts and of names                    |
//! | `pwd`      | the protocol `pwd`: passwords                                          |
//! | `random`   | [`SystemRng`]: random numbers of the kernel                            |
//! | `replaced_file` | files that are replaced as a whole, under a lock               |
//! | `s3`       | keys and signatures of requests to object stores                       |
//! | `s3_environment` | the object store and keys that the environment of a user names   |
//! | `secret`   | [`Secret`]: bytes that are wiped and never printed                     |
//! | `server`   | [`ServerLogin`], [`ServerProtocol`]: the server's side of an exchange  |
//! | `signing`  | requests that must be signed, and what a signature covers              |
//! | `sss`      | the protocol `sss`: shared keys                                        |
//! | `sut`      | the messages of `gsi` and `pwd`                                               |
//! | `tls`      | certificates, keys and TLS contexts                                     |
//! | `tokens`   | authorization by bearer tokens of WLCG and SciTokens                   |
//! | `trusted_file` | files that nobody else may have written                            |
//! | `unix`     | the protocol `unix`: asserted names                                    |
//! | `ztn`      | the protocol `ztn`: bearer tokens                                      |

// Only `krb5::library` allows it, because it calls the Kerberos library of the system.
#![deny(unsafe_code)]

pub mod access;

mod accounts;
mod age;
mod challenge;
mod client;
mod entity;
mod entity_map;
mod export_record;
mod exported_file;
pub mod grid;
pub mod gsi;
pub mod host;
mod identity_text;
pub mod krb5;
pub mod macaroons;
mod offers;
mod patterns;
pub mod pwd;
mod random;
mod replaced_file;
pub mod s3;
mod s3_environment;
mod secret;
mod server;
mod signing;
pub mod sss;
pub mod sut;
pub mod tls;
pub mod tokens;
mod trusted_file;
pub mod unix;
pub mod ztn;

pub use accounts::{AccountDatabase, UserAccount};
pub use client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
pub use entity::{
    Entity, EntityAttributes, EntityFields, EntityNames, HostName, address_text, is_reserved_attribute,
};
pub use entity_map::{EntityMap, MapOutcome, MappedClient};
pub use export_record::{ExportRecords, remove_exported_leftovers};
pub use exported_file::{ExportedFile, ExportedFiles};
pub use identity_text::{IDENTITY_KEY, decode_identity, encode_identity};
pub use offers::{OFFERS_BYTES_MAX, OfferedProtocol, allowed_by, encode_offer, offered_protocols};
pub use patterns::PeerHostPattern;
pub use random::SystemRng;
pub use replaced_file::{directory_of, only_root_replaces};
pub use s3_environment::S3Environment;
pub use secret::Secret;
pub use server::{
    CertificateInForce, FileRefresh, LoginPeer, LoginWaker, RefusedLogin, ServerLogin, ServerProtocol,
    ServerStep, StepCost,
};
pub use signing::{RequestHash, RequestSigner, SignatureCipher, SigningRequirements, request_hash};
pub use trusted_file::OTHER_OWNER;
