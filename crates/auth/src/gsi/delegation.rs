//! [`DelegatedProxy`]: a proxy that a client signs for this server, whose key the server has made.
//!
//! ```text
//! server                                     client
//! encrypted: signed tag 3, request, tag 4   -->
//!                                           <--  encrypted: signed tag 4, certificate or refusal
//! ```
//!
//! The server asks only clients that offer it, and whose proxy allows proxies below it. A client that
//! refuses is logged in without. The private key of the client never leaves it; a message with a key
//! ends the login.
//!
//! Source: security facts, section 2.6.10.

use super::certificate::GridCertificate;
use super::client::{GsiClient, GsiClientSettings};
use super::credential::GridCredential;
use super::messages::{self, client_option, step};
use super::pem;
use super::proxy::{PROXY_BITS_MIN, RequestedProxy};
use super::rsa_keys::{RsaSigner, RsaVerifier};
use super::server::{GsiServerLogin, Stage, check_time};
use super::session_cipher::SessionCipher;
use super::trust::{ChainTrust, GridIdentity};
use crate::accounts::AccountDatabase;
use crate::challenge::Challenge;
use crate::entity::{Entity, EntityFields};
use crate::exported_file::ExportedFile;
use crate::grid::ChainRole;
use crate::secret::Secret;
use crate::server::ServerStep;
use crate::sut::SutField;
use base::errno_text;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum length of a name within the path of a file in bytes.
const PATH_NAME_BYTES_MAX: usize = 64;

/// A proxy that a client has delegated, with its key. It is wiped on drop.
pub struct DelegatedProxy {
    /// The content of a proxy file.
    text: Secret,
    expires: SystemTime,
    /// The authorities that have verified it.
    trust: Arc<dyn ChainTrust>,
    /// The file that exists as long as this value.
    _file: Option<ExportedFile>,
}

impl std::fmt::Debug for DelegatedProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DelegatedProxy").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl DelegatedProxy {
    /// Returns the content of a proxy file: the certificate, its key, and the certificates above it.
    #[must_use]
    pub const fn text(&self) -> &Secret {
        &self.text
    }

    /// Reports whether it is no longer valid.
    #[must_use]
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.expires <= now
    }

    /// Returns the protocol by which this server logs in at other servers with the proxy. It trusts the
    /// authorities of this server and delegates nothing. For `accepts_weak_groups` see
    /// [`GsiClientSettings`].
    #[must_use]
    pub fn client(&self, accepts_weak_groups: bool) -> GsiClient {
        let mut settings = GsiClientSettings::of_environment(|_| None);
        settings.proxy_text = Some(self.text.clone());
        settings.accepts_weak_groups = accepts_weak_groups;
        let trust = self.trust.clone();
        GsiClient::new(settings, Arc::new(move || Ok(trust.clone())))
    }
}

/// A client whose certificates were verified.
pub(super) struct VerifiedClient {
    /// Its certificates, the one of its key first.
    pub(super) chain: Vec<GridCertificate>,
    pub(super) key: RsaVerifier,
    pub(super) identity: GridIdentity,
    pub(super) fields: EntityFields,
    /// Time of the first message of the exchange.
    pub(super) begun: SystemTime,
}

/// The state after the request for a proxy was sent.
pub(super) struct SentProxyRequest {
    client: VerifiedClient,
    requested: RequestedProxy,
    challenge: Challenge,
}

impl GsiServerLogin {
    /// Reports whether the client of these options, whose chain was verified, is asked for a proxy.
    pub(super) fn asks_for_proxy(&self, options: u32, identity: &GridIdentity) -> bool {
        if self.shared.settings.delegation.is_none() || options & client_option::DELEGATES == 0 {
            return false;
        }
        // The answer would be the private key of the client, which must not leave it.
        if options & client_option::FORWARD != 0 {
            tracing::info!(
                "gsi: {} delegates nothing, because it would send its private key (XrdSecGSIDELEGPROXY=2)",
                self.peer.host
            );
            return false;
        }
        let has_path_left = identity.proxy_path_left != Some(0);
        if !has_path_left {
            tracing::info!(
                "gsi: {} delegates nothing, because a proxy of its chain allows no more proxies below it (path length)",
                self.peer.host
            );
        }
        has_path_left
    }

    /// Makes a key, which takes some tenths of a second, and sends the request for its certificate.
    /// The client does not choose the size of the key, because larger ones take seconds, and all
    /// logins share the threads.
    pub(super) fn request_proxy(
        &mut self,
        client: VerifiedClient,
        tag: &Challenge,
        cipher: &SessionCipher,
    ) -> Result<ServerStep, String> {
        let signer = RsaSigner::generate(PROXY_BITS_MIN)?;
        let leaf = client.chain.first().ok_or("the certificates of the client are missing")?;
        let requested = RequestedProxy::new(leaf, signer)?;
        let challenge = self.shared.challenge();
        let request = pem::encode(pem::CERTIFICATE_REQUEST, &requested.request);
        let main = messages::begin_main(step::SERVER_PROXY_REQUEST)
            .with(SutField::SIGNED_CHALLENGE, &self.shared.sign(tag)?)
            .with(SutField::X509_REQUEST, request.as_bytes())
            .with(SutField::CHALLENGE, challenge.as_bytes())
            .finish();
        let reply =
            messages::begin(step::SERVER_PROXY_REQUEST).with(SutField::MAIN, &cipher.seal(&main)).finish();
        self.stage = Stage::Proxy(Box::new(SentProxyRequest { client, requested, challenge }));
        Ok(ServerStep::Continue(reply))
    }

    /// Takes the signed proxy, or the refusal to sign one.
    pub(super) fn take_proxy(
        &mut self,
        credentials: &[u8],
        sent: SentProxyRequest,
        now: SystemTime,
    ) -> Result<ServerStep, String> {
        let SentProxyRequest { mut client, requested, challenge } = sent;
        check_time(client.begun, now)?;
        let cipher = self.cipher.clone().ok_or("there is no session key")?;
        let message = messages::decode(credentials, step::CLIENT_SIGNED_PROXY)?;
        let main = message.field(SutField::MAIN).ok_or("the inner message is missing")?;
        let main = cipher.open(main).ok_or("the inner message cannot be decrypted")?;
        let main = messages::decode_main(main.expose(), step::CLIENT_SIGNED_PROXY)?;
        challenge.check_signed(&main, &client.key)?;
        match main.text(SutField::X509) {
            Some(text) => {
                let proxy = self.delegated(&client, requested, text, now)?;
                let settings = self.shared.settings.delegation.as_ref();
                if settings.is_some_and(|delegation| delegation.as_credentials) {
                    client.fields.credentials = Some(proxy.text.clone());
                }
                client.fields.delegated_proxy = Some(Arc::new(proxy));
            }
            None if main.field(SutField::MESSAGE).is_some() => {
                tracing::info!("gsi: {} signs no proxy for this server", self.peer.host);
            }
            None => return Err("the signed proxy of the client is missing".to_owned()),
        }
        Ok(ServerStep::Done(Entity::new(client.fields)))
    }

    /// Verifies the certificate that the client has signed, and returns the proxy.
    fn delegated(
        &self,
        client: &VerifiedClient,
        requested: RequestedProxy,
        text: &str,
        now: SystemTime,
    ) -> Result<DelegatedProxy, String> {
        let encoded = pem::single(text, pem::CERTIFICATE);
        let encoded = encoded.ok_or("the client sends something else than one certificate as its proxy")?;
        let proxy = GridCertificate::decode(&encoded)?;
        let leaf = client.chain.first().ok_or("the certificates of the client are missing")?;
        requested.check(leaf, &proxy)?;
        let chain: Vec<GridCertificate> =
            std::iter::once(proxy).chain(client.chain.iter().cloned()).collect();
        let encoded: Vec<Vec<u8>> = chain.iter().map(|certificate| certificate.der.clone()).collect();
        let identity = self.shared.trust.verify(&encoded, ChainRole::Delegation, now);
        let identity = identity.map_err(|reason| format!("the delegated proxy: {reason}"))?;
        if identity.subject != client.identity.subject {
            return Err("the delegated proxy is one of another user".to_owned());
        }
        let text = GridCredential::new(chain, requested.signer)?.to_text()?;
        Ok(DelegatedProxy {
            text: Secret::from(text.as_bytes()),
            expires: identity.expires,
            trust: self.shared.trust.clone(),
            _file: self.export(client, text.as_bytes()),
        })
    }

    /// Writes a proxy to the configured file. A failure concerns the programs that read the file, but
    /// not the login.
    fn export(&self, client: &VerifiedClient, text: &[u8]) -> Option<ExportedFile> {
        let template = self.shared.settings.delegation.as_ref()?.file.as_deref()?;
        let accounts = self.shared.names.accounts.as_deref();
        let path = export_path(template, &client.fields, &client.identity.subject_hash, accounts);
        let write = |path: &Path| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let written = file.and_then(|mut file| file.write_all(text));
            written.map_err(|error| format!("the delegated proxy cannot be written: {}", errno_text(&error)))
        };
        let owner = &client.identity.subject;
        let stored = path.and_then(|path| self.shared.files.store(&path, owner, write));
        stored.inspect_err(|reason| tracing::warn!("gsi: {}: {reason}", self.peer.host)).ok().flatten()
    }
}

/// Returns the path of the file for the proxy of a client. A client without an account has the hash of
/// its subject instead of its name and its id.
fn export_path(
    template: &str,
    fields: &EntityFields,
    subject_hash: &str,
    accounts: Option<&dyn AccountDatabase>,
) -> Result<PathBuf, String> {
    let account = match (&fields.name, accounts) {
        (Some(name), Some(accounts)) => accounts.user(name).map_err(|error| {
            format!("the accounts of this host cannot be asked for {name}: {}", errno_text(&error))
        })?,
        _ => None,
    };
    let user = fields.name.as_deref().filter(|_| account.is_some()).unwrap_or(subject_hash);
    let user_id = account.map_or_else(|| subject_hash.to_owned(), |account| account.uid.to_string());
    let first = |list: &Option<Box<str>>| {
        path_name(list.as_deref().and_then(|list| list.split(' ').next()).unwrap_or_default())
    };
    let values = [
        ("<host>", path_name(&fields.host)),
        ("<vo>", first(&fields.vorg)),
        ("<group>", first(&fields.groups)),
        ("<user>", path_name(user)),
        ("<uid>", user_id),
    ];
    Ok(values.iter().fold(template.to_owned(), |path, (name, value)| path.replace(name, value)).into())
}

/// Returns text of a client as one name of a path.
fn path_name(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.:@+=[]".contains(letter);
    let name: String = text
        .chars()
        .take(PATH_NAME_BYTES_MAX)
        .map(|letter| if is_plain(letter) { letter } else { '_' })
        .collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if name.is_empty() => "_".to_owned(),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::TestAccounts;

    #[test]
    fn files_are_named_after_the_client() {
        let path = |template: &str, name: &str| {
            let fields = EntityFields {
                name: Some(name.into()),
                host: "c.example.org".into(),
                vorg: Some("../cms cms".into()),
                groups: Some("/cms/prod /cms".into()),
                ..EntityFields::default()
            };
            export_path(template, &fields, "0a1b2c3d", Some(&TestAccounts))
        };
        assert_eq!(path("/tmp/x509up_u<uid>", "alice"), Ok("/tmp/x509up_u1001".into()));
        assert_eq!(path("/tmp/x509up_u<uid>", "0a1b2c3d.0"), Ok("/tmp/x509up_u0a1b2c3d".into()));
        assert_eq!(path("/t/<host>/<user>", "alice"), Ok("/t/c.example.org/alice".into()));
        assert_eq!(path("/t/<user>", "/CN=bob"), Ok("/t/0a1b2c3d".into()), "it has no account");
        // No value of a client leads to another directory.
        assert_eq!(path("/t/<vo>/<group>/<user>", "alice"), Ok("/t/_._cms/_cms_prod/alice".into()));
        assert!(path("/t/<uid>", "broken").unwrap_err().contains("cannot be asked for broken"));
        assert_eq!(path_name(""), "_");
        assert_eq!(path_name(&"x".repeat(100)).len(), PATH_NAME_BYTES_MAX);
    }
}
