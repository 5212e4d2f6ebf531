//! The Kerberos library of the system, opened while the program runs.
//!
//! The protocol needs raw AP-REQ and KRB-CRED messages, which GSSAPI does not offer. The library is not
//! linked, so that programs start on machines without it. This is the only module of the crate with
//! `unsafe` code. Its types own what the library allocates, and release it in the context that made it.
//!
//! Layouts and numbers are those of `krb5.h` of MIT Kerberos, whose interface `libkrb5.so.3` keeps.
//!
//! | file        | contents                                                         |
//! |-------------|------------------------------------------------------------------|
//! | `context`   | [`KerberosContext`]: names, key tables, caches                   |
//! | `error`     | [`KerberosError`], [`LibraryFault`]                              |
//! | `exchange`  | [`KerberosExchange`]: messages of one exchange                   |
//! | `functions` | functions and layouts, and the loading of the library            |
//! | `keytab_copy` | [`KeytabCopy`]: the keys of a file in memory                   |
//! | `pool`      | [`ContextPool`]: contexts that are kept between exchanges        |

#![allow(unsafe_code)]

mod context;
mod error;
mod exchange;
mod functions;
mod keytab_copy;
mod pool;

pub(super) use context::KerberosContext;
pub(super) use error::{KerberosError, LibraryFault};
pub(super) use exchange::{AcceptedTicket, KerberosExchange};
#[cfg(test)]
pub(super) use keytab_copy::CopiedKeys;
pub(super) use keytab_copy::KeytabCopy;
pub(super) use pool::ContextPool;
