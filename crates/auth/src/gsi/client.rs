//! [`GsiClient`]: the client's side of `gsi`.

use super::agreement::{KeyAgreement, PRIME_BITS_MIN, PeerAgreement, WEAK_PRIME_BITS_MIN};
use super::certificate::GridCertificate;
use super::credential::{GridCredential, default_proxy};
use super::host_names::{self, AcceptedServer};
use super::messages::{self, EXCHANGE_SECONDS_MAX, VERSION, VERSION_MIN, VERSION_OLD, client_option, step};
use super::offer::{GsiOffer, hash_list};
use super::proxy::ProxyRequest;
use super::rsa_keys::RsaVerifier;
use super::session_cipher::{GsiCipher, IV_BYTES, SessionCipher};
use super::trust::ChainTrust;
use super::{GSI, pem};
use crate::challenge::Challenge;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::grid::ChainRole;
use crate::offers::OfferedProtocol;
use crate::patterns::PeerHostPattern;
use crate::random::SystemRng;
use crate::secret::Secret;
use crate::signing::SignatureCipher;
use crate::sut::{SutField, SutMessage};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Minimum size of the key of a server in bits.
const KEY_BITS_MIN: usize = 2048;

/// The variable that accepts servers with a small group.
const WEAK_GROUPS_VARIABLE: &str = "SCALLA_GSI_WEAK_DH";

/// The variable with the hosts of old servers.
const OLD_SERVERS_VARIABLE: &str = "SCALLA_GSI_OLD_SERVERS";

/// The digests that can be chosen. The choice has no effect.
const DIGESTS: [&str; 5] = ["sha256", "sha384", "sha512", "sha1", "md5"];

/// The answer to a server that wants a proxy, from a client that delegates none.
const NOT_DELEGATED: &str = "Not allowed to sign proxy requests";

/// Files of credentials that a URL names (`xrd.gsiusrpxy`, `xrd.gsiusrcrt`, `xrd.gsiusrkey`).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GridFiles {
    /// A proxy with its key.
    pub proxy: Option<PathBuf>,
    /// A certificate.
    pub certificate: Option<PathBuf>,
    /// The key of the certificate.
    pub key: Option<PathBuf>,
}

/// Opens the authorities that a client trusts. It is called for each exchange and blocks.
pub type TrustOpener = Arc<dyn Fn() -> Result<Arc<dyn ChainTrust>, String> + Send + Sync>;

/// The settings of a client.
#[derive(Clone)]
pub struct GsiClientSettings {
    /// The files of the environment and of the home directory.
    pub files: GridFiles,
    /// Certificates and key of a proxy as text, which precede all files.
    pub proxy_text: Option<Secret>,
    /// Set to make a proxy if there is none; otherwise certificate and key are used directly.
    pub creates_proxy: bool,
    /// The proxies that are made.
    pub proxy: ProxyRequest,
    /// Names of servers that are accepted in addition to that of the host.
    pub server_names: Option<String>,
    /// The user that the server is asked for.
    pub user: Option<String>,
    /// Only the new hash of authorities is sent.
    pub new_hash_only: bool,
    /// Servers that ask for a proxy get one below that of the user, whose key they make.
    pub delegates: bool,
    /// Servers with a key agreement in a small group are accepted. Whoever records the connection can
    /// then compute the session key, and sign requests.
    pub accepts_weak_groups: bool,
    /// Servers that need not sign their key agreement (XRootD before 4.9). An attacker on the way can then
    /// compute the session key.
    pub old_servers: Vec<PeerHostPattern>,
}

impl GsiClientSettings {
    /// Takes the settings from the environment.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&str; 2]| names.into_iter().find_map(value).map(PathBuf::from);
        let home = |name: &str| value("HOME").map(|home| Path::new(&home).join(".globus").join(name));
        let files = GridFiles {
            proxy: first(["XrdSecGSIUSERPROXY", "X509_USER_PROXY"]),
            certificate: first(["XrdSecGSIUSERCERT", "X509_USER_CERT"]).or_else(|| home("usercert.pem")),
            key: first(["XrdSecGSIUSERKEY", "X509_USER_KEY"]).or_else(|| home("userkey.pem")),
        };
        let default = ProxyRequest::default();
        let number = |name: &str| value(name).and_then(|text| text.parse::<i64>().ok());
        let path_length = match number("XrdSecGSIPROXYDEPLEN") {
            Some(length) => u32::try_from(length).ok(),
            None => default.path_length,
        };
        let bits = number("XrdSecGSIPROXYKEYBITS").and_then(|bits| usize::try_from(bits).ok());
        Self {
            files,
            proxy_text: value("XrdSecCREDS").map(|text| Secret::new(text.into_bytes())),
            creates_proxy: value("XrdSecGSICREATEPROXY").as_deref() != Some("0"),
            proxy: ProxyRequest {
                bits: bits.unwrap_or(default.bits).max(default.bits),
                valid: value("XrdSecGSIPROXYVALID").and_then(|text| validity(&text)).unwrap_or(default.valid),
                path_length,
            },
            server_names: value("XrdSecGSISRVNAMES"),
            user: value("XrdSecUSER"),
            new_hash_only: value("XrdSecGSIUSEDEFAULTHASH").is_some(),
            delegates: delegates(value("XrdSecGSIDELEGPROXY").as_deref()),
            accepts_weak_groups: accepts_weak_groups(&variable),
            old_servers: value(OLD_SERVERS_VARIABLE)
                .map(|list| list.split(',').map(str::trim).map(PeerHostPattern::parse).collect())
                .unwrap_or_default(),
        }
    }

    /// Returns the credentials for a server: the text of the environment, a valid proxy, then
    /// certificate and key.
    fn credential(
        &self,
        of_url: &GridFiles,
        delegates: bool,
        now: SystemTime,
    ) -> Result<GridCredential, ClientAuthError> {
        if let Some(text) = &self.proxy_text {
            return self.of_text(text);
        }
        let proxy = of_url.proxy.as_ref().or(self.files.proxy.as_ref());
        let proxy = proxy.cloned().unwrap_or_else(default_proxy);
        let unusable = match GridCredential::read_proxy(&proxy) {
            Ok(credential) => match credential.check_time(now) {
                Ok(()) => return Ok(credential),
                Err(reason) => format!("{}: {reason}", proxy.display()),
            },
            Err(reason) => reason,
        };
        self.of_pair(of_url, delegates, now).map_err(|reason| ClientAuthError::NoCredentials {
            reason: format!("there is no valid proxy: {unusable}; {reason}"),
            remedy:
                "make a proxy by voms-proxy-init or scalla auth proxy init, or name one in X509_USER_PROXY"
                    .to_owned(),
        })
    }

    fn of_text(&self, text: &Secret) -> Result<GridCredential, ClientAuthError> {
        let parsed = std::str::from_utf8(text.expose()).map_err(|_| "it is not text".to_owned());
        let parsed = parsed.and_then(GridCredential::parse);
        let proxy = parsed.and_then(|credential| {
            if credential.is_proxy() {
                Ok(credential)
            } else {
                Err("it has less than two certificates".to_owned())
            }
        });
        proxy.map_err(|error| ClientAuthError::NoCredentials {
            reason: format!("XrdSecCREDS is no proxy: {error}"),
            remedy: "unset it, or set it to the content of a proxy file".to_owned(),
        })
    }

    fn of_pair(
        &self,
        of_url: &GridFiles,
        delegates: bool,
        now: SystemTime,
    ) -> Result<GridCredential, String> {
        let certificate = of_url.certificate.as_ref().or(self.files.certificate.as_ref());
        let key = of_url.key.as_ref().or(self.files.key.as_ref());
        let (Some(certificate), Some(key)) = (certificate, key) else {
            return Err("there is no certificate, because HOME is not set".to_owned());
        };
        let pair = GridCredential::read_pair(certificate, key)?;
        pair.check_time(now).map_err(|reason| format!("{}: {reason}", certificate.display()))?;
        // A proxy that is delegated is one below the proxy of the login.
        let path_length = self.proxy.path_length.map(|length| length.max(u32::from(delegates)));
        let request = ProxyRequest { path_length, ..self.proxy };
        if self.creates_proxy { pair.issue_proxy(request, now) } else { Ok(pair) }
    }
}

/// Reports whether the environment accepts servers whose key agreement is in a small group.
pub fn accepts_weak_groups(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable(WEAK_GROUPS_VARIABLE).as_deref() == Some("1")
}

/// Takes the choice of the user about delegation. The key of a proxy is never sent.
fn delegates(choice: Option<&str>) -> bool {
    if choice == Some("2") {
        tracing::warn!(
            "XrdSecGSIDELEGPROXY=2 would send the key of the proxy, so nothing is delegated; use 1"
        );
    }
    choice == Some("1")
}

/// Returns a validity of the form `hh:mm`.
fn validity(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':')?;
    let minutes = hours.parse::<u64>().ok()?.checked_mul(60)?.checked_add(minutes.parse().ok()?)?;
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

/// `gsi` as a client supports it.
#[derive(Clone)]
pub struct GsiClient {
    settings: Arc<GsiClientSettings>,
    open_trust: TrustOpener,
}

impl GsiClient {
    /// Creates the protocol of a user.
    #[must_use]
    pub fn new(settings: GsiClientSettings, open_trust: TrustOpener) -> Self {
        Self { settings: Arc::new(settings), open_trust }
    }
}

impl ClientProtocol for GsiClient {
    fn id(&self) -> &'static str {
        GSI
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let offer =
            GsiOffer::parse(&offer.parameters).ok_or(ClientAuthError::BadChallenge("offer of gsi"))?;
        let (host, address) = (context.server_host.as_str(), base::written_ip(&context.server_host));
        let is_old = offer.version < VERSION_MIN;
        let may_be_old = || self.settings.old_servers.iter().any(|hosts| hosts.matches(host, address));
        if is_old && !may_be_old() || !offer.has_module {
            return Err(untrusted(
                format!("version {} of gsi at the server does not protect the key agreement", offer.version),
                "ask its administrator for a server of XRootD 4.9 or later, or accept this one by SCALLA_GSI_OLD_SERVERS",
            ));
        }
        let trust = (self.open_trust)().map_err(|reason| ClientAuthError::NoCredentials {
            reason,
            remedy: AUTHORITY_REMEDY.to_owned(),
        })?;
        if !offer.authorities.iter().any(|hash| trust.has_authority(hash)) {
            let shown = offer.authorities.join(", ");
            let reason =
                format!("unknown CA: cannot verify server certificate: the authority {shown} is not known");
            return Err(untrusted(reason, AUTHORITY_REMEDY));
        }
        Ok(Box::new(GsiClientLogin {
            settings: self.settings.clone(),
            trust,
            host: context.server_host.clone(),
            files: context.grid_files.clone(),
            // Nothing is delegated with a key that an attacker could know.
            delegates: !is_old && (self.settings.delegates || context.delegates),
            is_old,
            stage: Stage::Begin,
            cipher: None,
        }))
    }
}

/// What the user can do if an authority is not known.
const AUTHORITY_REMEDY: &str = "name the directory of authorities in X509_CERT_DIR";

fn untrusted(reason: impl Into<String>, remedy: &str) -> ClientAuthError {
    ClientAuthError::UntrustedServer { reason: reason.into(), remedy: remedy.to_owned() }
}

/// Returns the error for a message of the server that is not according to the protocol.
fn violation(reason: impl Into<String>) -> ClientAuthError {
    untrusted(reason, "the server, or somebody between, does not keep to the protocol; use another server")
}

/// The message of the server that is expected.
enum Stage {
    Begin,
    Certificate(Box<SentRequest>),
    ProxyRequest(Box<SentCertificate>),
    Over,
}

/// What the client has sent in its first message.
struct SentRequest {
    credential: GridCredential,
    challenge: Challenge,
    begun: SystemTime,
}

/// What the client has sent in its second message.
struct SentCertificate {
    credential: GridCredential,
    challenge: Challenge,
    server: RsaVerifier,
    may_have_proxy: bool,
}

struct GsiClientLogin {
    settings: Arc<GsiClientSettings>,
    trust: Arc<dyn ChainTrust>,
    host: String,
    files: GridFiles,
    /// A server that asks for a proxy gets one.
    delegates: bool,
    /// The key agreement is not signed.
    is_old: bool,
    stage: Stage,
    cipher: Option<Arc<SessionCipher>>,
}

impl ClientLogin for GsiClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        match (std::mem::replace(&mut self.stage, Stage::Over), challenge) {
            (Stage::Begin, None) => self.send_request(now),
            (Stage::Certificate(sent), Some(message)) => self.send_certificate(*sent, message, now),
            (Stage::ProxyRequest(sent), Some(message)) => self.answer_proxy_request(&sent, message, now),
            _ => Err(ClientAuthError::TooManySteps),
        }
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.cipher.clone().map(|cipher| cipher as Arc<dyn SignatureCipher>)
    }
}

impl GsiClientLogin {
    fn send_request(&mut self, now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        let credential = self.settings.credential(&self.files, self.delegates, now)?;
        let challenge = Challenge::random(&mut SystemRng);
        let own = credential.end_entity().ok_or_else(|| "no certificate found".to_owned());
        let hashes = own.and_then(|own| self.trust.authority_hashes(&own.der));
        let [new, old] = hashes.map_err(|reason| ClientAuthError::NoCredentials {
            reason,
            remedy: AUTHORITY_REMEDY.to_owned(),
        })?;
        let hashes = if self.settings.new_hash_only { vec![new] } else { vec![new, old] };
        let options = match (credential.is_proxy(), self.delegates) {
            (true, true) => {
                client_option::CREATE_PROXY | client_option::DELEGATE | client_option::SIGN_REQUEST
            }
            (true, false) => client_option::CREATE_PROXY,
            (false, _) => 0,
        };
        let main = messages::begin_main(step::CLIENT_REQUEST)
            .with(SutField::CHALLENGE, challenge.as_bytes())
            .finish();
        let message = messages::begin(step::CLIENT_REQUEST)
            .with_number(SutField::VERSION, if self.is_old { VERSION_OLD } else { VERSION })
            .with(SutField::ISSUER_HASH, hash_list(&hashes).as_bytes())
            .with_number(SutField::CLIENT_OPTIONS, options)
            .with(SutField::MAIN, &main)
            .finish();
        self.stage = Stage::Certificate(Box::new(SentRequest { credential, challenge, begun: now }));
        Ok(message)
    }

    fn send_certificate(
        &mut self,
        sent: SentRequest,
        message: &[u8],
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        if now.duration_since(sent.begun).is_ok_and(|since| since.as_secs() > EXCHANGE_SECONDS_MAX) {
            return Err(violation("the server took too long to answer"));
        }
        let message = messages::decode(message, step::SERVER_CERTIFICATE).map_err(violation)?;
        let (certificate, accepted) = self.server_certificate(&message, now)?;
        let key = certificate.public_key().ok().and_then(|key| RsaVerifier::from_public_key(&key));
        let key = key.ok_or_else(|| violation("the certificate of the server has no RSA key"))?;
        if key.bits() < KEY_BITS_MIN {
            let reason = format!("the key of the server has {} bits, {KEY_BITS_MIN} are needed", key.bits());
            return Err(untrusted(reason, "ask its administrator for a new certificate"));
        }
        let main = message.field(SutField::MAIN).ok_or_else(|| violation("the inner message is missing"))?;
        let main = messages::decode_main(main, step::SERVER_CERTIFICATE).map_err(violation)?;
        sent.challenge.check_signed(&main, &key).map_err(violation)?;
        let tag =
            Challenge::of_peer(&main).ok_or_else(|| violation("the challenge is missing or malformed"))?;
        let bits_min = if self.settings.accepts_weak_groups { WEAK_PRIME_BITS_MIN } else { PRIME_BITS_MIN };
        let agreed = agree(&message, (!self.is_old).then_some(&key), bits_min)?;
        let cipher = choose_cipher(&message)?;
        let digest = choose_digest(&message)?;
        let (cipher_name, cipher) = match self.is_old {
            false => (format!("{}#{IV_BYTES}", cipher.name()), SessionCipher::new(cipher, &agreed.secret)),
            true => (cipher.name().to_owned(), SessionCipher::of_old_agreement(cipher, &agreed.secret)),
        };
        let cipher = cipher.ok_or_else(|| violation("the common secret is too short"))?;
        let challenge = Challenge::random(&mut SystemRng);
        let reply = self.certificate_message(&sent.credential, tag, challenge, &agreed.own, &cipher);
        let reply = reply.map_err(|error| ClientAuthError::NoCredentials {
            reason: format!("the key of the user cannot sign: {error}"),
            remedy: "make a new proxy by voms-proxy-init or scalla auth proxy init".to_owned(),
        })?;
        let message = messages::begin(step::CLIENT_CERTIFICATE)
            .with(SutField::MAIN, &reply.main)
            .with(SutField::CIPHER_NAMES, cipher_name.as_bytes())
            .with(SutField::DIGEST_NAMES, digest.as_bytes());
        let message = match self.is_old {
            false => message
                .with(SutField::CIPHER, &reply.agreement)
                .with(SutField::PUBLIC_KEY, reply.public_key.as_bytes()),
            true => message.with(SutField::PUBLIC_KEY, agreed.own.text().as_bytes()),
        };
        self.cipher = Some(Arc::new(cipher));
        let credential = sent.credential;
        let may_have_proxy = accepted.may_have_proxy;
        let sent = SentCertificate { credential, challenge, server: key, may_have_proxy };
        self.stage = Stage::ProxyRequest(Box::new(sent));
        Ok(message.finish())
    }

    /// Returns the certificate of the server after its verification.
    fn server_certificate(
        &self,
        message: &SutMessage<'_>,
        now: SystemTime,
    ) -> Result<(GridCertificate, AcceptedServer), ClientAuthError> {
        let text = message.text(SutField::X509).ok_or_else(|| violation("the certificate is missing"))?;
        let mut chain = GridCertificate::chain_of_pem(text).map_err(violation)?;
        let certificate = match chain.pop() {
            Some(certificate) if chain.is_empty() => certificate,
            _ => return Err(violation("the server does not send exactly one certificate")),
        };
        let encoded = [certificate.der.clone()];
        self.trust.verify(&encoded, ChainRole::Server, now).map_err(|reason| {
            untrusted(format!("the certificate of the server: {reason}"), AUTHORITY_REMEDY)
        })?;
        let patterns = self.settings.server_names.as_deref();
        let accepted = host_names::check(&certificate, &self.host, patterns).map_err(|reason| {
            untrusted(
                reason,
                "use the name of the server in the URL, or accept this one by XrdSecGSISRVNAMES",
            )
        })?;
        Ok((certificate, accepted))
    }

    fn certificate_message(
        &self,
        credential: &GridCredential,
        tag: Challenge,
        challenge: Challenge,
        agreement: &KeyAgreement,
        cipher: &SessionCipher,
    ) -> Result<CertificateMessage, String> {
        let signer = &credential.signer;
        let mut chain = String::new();
        for certificate in credential.sent_chain() {
            pem::append(pem::CERTIFICATE, &certificate.der, &mut chain);
        }
        let mut main = messages::begin_main(step::CLIENT_CERTIFICATE)
            .with(SutField::SIGNED_CHALLENGE, &signer.sign_raw(tag.as_bytes())?)
            .with(SutField::X509, chain.as_bytes());
        if let Some(user) = &self.settings.user {
            main = main.with(SutField::USER, user.as_bytes());
        }
        let main = main.with(SutField::CHALLENGE, challenge.as_bytes()).finish();
        Ok(CertificateMessage {
            main: cipher.seal(&main),
            agreement: signer.sign_raw(agreement.text().as_bytes())?,
            public_key: pem::encode(pem::PUBLIC_KEY, &signer.public_key()?),
        })
    }

    /// Answers a server that asks for a proxy.
    fn answer_proxy_request(
        &mut self,
        sent: &SentCertificate,
        message: &[u8],
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let message = messages::decode(message, step::SERVER_PROXY_REQUEST).map_err(violation)?;
        let cipher = self.cipher.clone().ok_or(ClientAuthError::TooManySteps)?;
        let main = message.field(SutField::MAIN).and_then(|main| cipher.open(main));
        let main = main.ok_or_else(|| violation("the inner message cannot be decrypted"))?;
        let main = messages::decode_main(main.expose(), step::SERVER_PROXY_REQUEST).map_err(violation)?;
        sent.challenge.check_signed(&main, &sent.server).map_err(violation)?;
        let tag =
            Challenge::of_peer(&main).ok_or_else(|| violation("the challenge is missing or malformed"))?;
        let signed = sent.credential.signer.sign_raw(tag.as_bytes()).map_err(violation)?;
        let answer =
            messages::begin_main(step::CLIENT_SIGNED_PROXY).with(SutField::SIGNED_CHALLENGE, &signed);
        let answer = match self.signed_proxy(sent, &main, now) {
            Some(proxy) => answer.with(SutField::X509, proxy.as_bytes()),
            None => answer.with(SutField::MESSAGE, NOT_DELEGATED.as_bytes()),
        };
        let main = answer.finish();
        Ok(messages::begin(step::CLIENT_SIGNED_PROXY).with(SutField::MAIN, &cipher.seal(&main)).finish())
    }
}

impl GsiClientLogin {
    /// Returns the certificate that a server has requested; `None` if the user does not delegate, or the
    /// request cannot be signed.
    fn signed_proxy(&self, sent: &SentCertificate, main: &SutMessage<'_>, now: SystemTime) -> Option<String> {
        if !self.delegates {
            return None;
        }
        if !sent.may_have_proxy {
            tracing::warn!("no proxy is delegated to {}: XrdSecGSISRVNAMES does not list it", self.host);
            return None;
        }
        let request = main.text(SutField::X509_REQUEST);
        let request = request.and_then(|text| pem::single(text, pem::CERTIFICATE_REQUEST));
        let request = request.ok_or_else(|| "the request is missing or malformed".to_owned());
        match request.and_then(|request| sent.credential.sign_request(&request, self.settings.proxy, now)) {
            Ok(proxy) => Some(pem::encode(pem::CERTIFICATE, &proxy)),
            Err(error) => {
                tracing::warn!("no proxy is delegated to {}: {error}", self.host);
                None
            }
        }
    }
}

/// The parts of the second message that need the key of the user.
struct CertificateMessage {
    main: Vec<u8>,
    agreement: Vec<u8>,
    public_key: String,
}

/// A key agreement with a server.
struct Agreed {
    own: KeyAgreement,
    secret: Secret,
}

/// Agrees on a key with a server that signs with `key`, or with one that does not sign.
fn agree(
    message: &SutMessage<'_>,
    key: Option<&RsaVerifier>,
    bits_min: usize,
) -> Result<Agreed, ClientAuthError> {
    let signed = |key: &RsaVerifier| message.field(SutField::CIPHER).and_then(|signed| key.recover(signed));
    let unsigned = || message.field(SutField::PUBLIC_KEY).map(<[u8]>::to_vec);
    let text = key.map_or_else(unsigned, signed);
    let text = text.ok_or_else(|| violation("the key agreement is missing, or not signed by the server"))?;
    let peer = PeerAgreement::decode(&text).map_err(|error| violation(error.to_string()))?;
    let group = peer.safe_group(bits_min, &mut SystemRng).map_err(|error| {
        let remedy = "ask the administrator of the server for a newer version, or accept this one by \
                      SCALLA_GSI_WEAK_DH=1 if its requests need no protection on the way";
        untrusted(error.to_string(), remedy)
    })?;
    let own = KeyAgreement::generate(group, &mut SystemRng);
    let own = own.ok_or_else(|| violation("the group of the key agreement is malformed"))?;
    let secret = own.agree(&peer).map_err(|error| violation(error.to_string()))?;
    Ok(Agreed { own, secret })
}

/// Returns the first cipher of a server that this client knows.
fn choose_cipher(message: &SutMessage<'_>) -> Result<GsiCipher, ClientAuthError> {
    let list = message.text(SutField::CIPHER_NAMES).unwrap_or_default();
    let cipher = list.split(':').find_map(GsiCipher::from_name);
    cipher.ok_or_else(|| violation(format!("the server offers only the ciphers {list}")))
}

fn choose_digest(message: &SutMessage<'_>) -> Result<String, ClientAuthError> {
    let list = message.text(SutField::DIGEST_NAMES).unwrap_or_default();
    let digest = list.split(':').find(|name| DIGESTS.contains(name));
    digest.map(str::to_owned).ok_or_else(|| violation(format!("the server offers only the digests {list}")))
}

#[cfg(test)]
mod tests;
