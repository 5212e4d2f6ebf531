//! Authorization of operations by the rules of an authorization database (`acc.authdb`).
//!
//! A file is parsed and compiled when it is loaded, so that a decision takes less than 1 us however
//! many rules there are. Which records apply to a client is looked up once for each client; the
//! first pair of each record whose path is a prefix of the request path counts.
//!
//! | file         | contents                                                                |
//! |--------------|-------------------------------------------------------------------------|
//! | `authorizer` | [`Authorizer`]: decides with the rules in force; renewal, audit lines   |
//! | `database`   | [`AccessDatabase`]: a compiled rule file, decisions with their reasons  |
//! | `netgroups`  | [`NetgroupDatabase`]: members of netgroups                              |
//! | `parse`      | the parser of rule files                                                |
//! | `policy`     | [`AccessPolicy`]: the layers in their order: macaroons, tokens, rules   |
//! | `principal`  | [`Principal`]: the client of a request                                  |
//! | `privileges` | [`Privileges`], and what each [`AccessOperation`] needs                 |
//! | `records`    | records after parsing, and problems found in them                       |
//! | `rules`      | compiled rules                                                          |
//! | `tokens`     | records as words with positions                                         |

mod authorizer;
mod database;
mod issuing;
mod netgroups;
mod parse;
mod policy;
mod principal;
mod privileges;
mod records;
mod rules;
#[cfg(test)]
mod tests;
mod tokens;

pub use authorizer::{AccessClient, AuditedDecisions, Authorizer, AuthorizerSettings, RulesRefresh};
pub use database::{
    AccessDatabase, AccessExplanation, AuthdbCheck, AuthdbError, AuthdbSource, ClientRecords,
};
pub use issuing::{MacaroonDenial, PassedOnRights};
pub use netgroups::{NetgroupDatabase, NetgroupMember};
pub use policy::{
    AccessPolicy, AccessRequest, CredentialKind, CredentialLayer, LayerDecision, RequestToken, TokenOrigin,
};
pub(crate) use principal::AttributeColumn;
pub use principal::{Principal, RequestIdentity};
pub use privileges::{AccessOperation, Privileges};
pub use records::{
    AUTHDB_BYTES_MAX, AUTHDB_PAIRS_MAX, AUTHDB_PROBLEMS_MAX, AuthdbEncoding, AuthdbProblem, RecordKind,
};
pub use rules::{DecidingPair, PathMatch};
pub use tokens::AuthdbPosition;
