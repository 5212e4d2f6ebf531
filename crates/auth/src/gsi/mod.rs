//! `gsi`: certificates of grids. Server and client prove the keys of their certificates, and agree on a
//! session key. Clients use proxies, which are short-lived certificates that users issue themselves.
//!
//! | file             | contents                                                           |
//! |------------------|--------------------------------------------------------------------|
//! | `agreement`      | the key agreement                                                  |
//! | `blinding`       | the private operation of an RSA key                                |
//! | `certificate`    | parts of certificates                                              |
//! | `certificate_server` | [`CertificateServer`]: logins with certificates in handshakes of TLS |
//! | `client`         | [`GsiClient`]: the client's side                                   |
//! | `credential`     | the certificates and the key of a user                             |
//! | `delegation`     | [`DelegatedProxy`]: proxies that clients sign for this server      |
//! | `fixed_base`     | powers of one number                                               |
//! | `host_names`     | the names of servers in certificates                               |
//! | `identify`       | the identity of the owner of a credential, for explanations        |
//! | `identity_rules` | the identity of the owner of a chain                               |
//! | `messages`       | steps, options, challenges                                         |
//! | `modular`        | modular exponentiation                                             |
//! | `offer`          | the parameters in a server's list of protocols                     |
//! | `pem`            | PEM text                                                           |
//! | `proxy`          | certificates of proxies                                            |
//! | `rsa_keys`       | RSA keys                                                           |
//! | `server`         | [`GsiServer`]: the server's side                                   |
//! | `server_identity` | the certificate and the key of the server                         |
//! | `session_cipher` | [`GsiCipher`]: the cipher with the session key                     |
//! | `settings`       | [`GsiServerSettings`]: the configuration of the server             |
//! | `trust`          | [`ChainTrust`], [`NameMap`]: the verification of chains            |
//! | `vo_names`       | [`VoNames`]: users and groups by virtual organizations             |
//!
//! Source: security facts, section 2.6; decision 041.

pub(crate) mod agreement;
mod blinding;
mod certificate;
mod certificate_server;
mod client;
mod credential;
mod delegation;
mod fixed_base;
mod host_names;
mod identify;
mod identity_rules;
mod messages;
mod modular;
mod offer;
pub(crate) mod pem;
mod proxy;
mod rsa_keys;
mod server;
mod server_identity;
mod session_cipher;
mod settings;
mod trust;
mod vo_names;

#[cfg(test)]
mod recorded;
#[cfg(test)]
pub(crate) mod vectors;

pub use agreement::is_agreement_text;
pub use certificate_server::CertificateServer;
pub use client::{GridFiles, GsiClient, GsiClientSettings, TrustOpener, accepts_weak_groups};
pub use credential::{GridCredential, default_proxy};
pub use delegation::DelegatedProxy;
pub use identity_rules::NameMaps;
pub(crate) use modular::without_leading_zeros;
pub use proxy::{PROXY_BITS_MIN, ProxyRequest};
pub use server::GsiServer;
pub use session_cipher::GsiCipher;
pub use settings::{
    AttributeUse, DelegationUse, ForwardedChain, GsiServerSettings, LimitedProxies, NameMapping,
};
pub use trust::{ChainTrust, GridIdentity, NameMap, NameMapList};
pub use vo_names::{VoNames, VoUser};

/// The id of the protocol.
pub const GSI: &str = "gsi";
