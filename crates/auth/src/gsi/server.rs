//! [`GsiServer`]: the server's side of `gsi`.
//!
//! ```text
//! client                                     server
//! versions, hashes of its authority, tag 1  -->
//!                                           <--  certificate, key agreement, ciphers, signed tag 1, tag 2
//! key agreement, encrypted: signed tag 2,   -->
//! certificates, tag 3
//! ```
//!
//! A server that accepts delegated proxies goes on as `delegation` describes it.

use super::agreement::{DhGroup, KeyAgreement, PeerAgreement};
use super::certificate::GridCertificate;
use super::certificate_server::ChainLogin;
use super::delegation::{SentProxyRequest, VerifiedClient};
use super::identity_rules::{IdentityRules, NameMaps};
use super::messages::{self, DIGEST, EXCHANGE_SECONDS_MAX, OLD_DIGESTS, VERSION_MIN, client_option, step};
use super::offer;
use super::rsa_keys::{RsaSigner, RsaVerifier};
use super::server_identity::ServerIdentity;
use super::session_cipher::{GsiCipher, IV_BYTES, SessionCipher};
use super::settings::{GsiServerSettings, NameMapping};
use super::trust::{ChainTrust, GridIdentity};
use super::{GSI, pem};
use crate::challenge::Challenge;
use crate::entity::{Entity, EntityFields};
use crate::exported_file::ExportedFiles;
use crate::grid::ChainRole;
use crate::patterns::PeerHostPattern;
use crate::server::{
    CertificateInForce, FileRefresh, LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep,
    StepCost,
};
use crate::signing::SignatureCipher;
use crate::sut::{SutField, SutMessage};
use base::Rng;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// Minimum length of credentials: id, step, end, and three fields.
const CREDENTIAL_BYTES_MIN: usize = 4 + 4 + 4 + 3 * 8;

/// `gsi` as a server offers it. All exchanges share its certificate and its authorities.
pub struct GsiServer(Arc<GsiShared>);

pub(super) struct GsiShared {
    pub(super) settings: GsiServerSettings,
    identity: RwLock<Arc<ServerIdentity>>,
    pub(super) trust: Arc<dyn ChainTrust>,
    pub(super) names: NameMaps,
    /// Files with delegated proxies.
    pub(super) files: Arc<ExportedFiles>,
    group: Arc<DhGroup>,
    rng: Mutex<Box<dyn Rng + Send>>,
    /// The reason why the present certificate is not in force, if it is not.
    failure: Mutex<Option<String>>,
}

impl GsiServer {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// The file and the reason why it cannot be used.
    pub fn open(
        settings: GsiServerSettings,
        trust: Arc<dyn ChainTrust>,
        names: NameMaps,
        rng: Box<dyn Rng + Send>,
    ) -> Result<Self, String> {
        let identity = ServerIdentity::read(&settings, trust.as_ref())?;
        Self::with_identity(settings, identity, trust, names, rng)
    }

    /// Creates a server with the certificate and the key of these texts, which are not read from files
    /// until the first refresh.
    ///
    /// # Errors
    /// The reason why they cannot be used.
    pub fn with_certificate(
        settings: GsiServerSettings,
        certificate: &str,
        key: &str,
        trust: Arc<dyn ChainTrust>,
        names: NameMaps,
        rng: Box<dyn Rng + Send>,
    ) -> Result<Self, String> {
        let chain = GridCertificate::chain_of_pem(certificate)?;
        let certificate = chain.first().ok_or("no certificate found")?;
        let signer = RsaSigner::from_pem(key)?;
        let identity = ServerIdentity::new(certificate, signer, settings.new_hash_only, trust.as_ref())?;
        Self::with_identity(settings, identity, trust, names, rng)
    }

    fn with_identity(
        settings: GsiServerSettings,
        identity: ServerIdentity,
        trust: Arc<dyn ChainTrust>,
        names: NameMaps,
        rng: Box<dyn Rng + Send>,
    ) -> Result<Self, String> {
        let template = settings.delegation.as_ref().and_then(|delegation| delegation.file.clone());
        let group = DhGroup::named().ok_or("the group of the key agreement is malformed")?;
        group.prepare_key_pairs();
        Ok(Self(Arc::new(GsiShared {
            settings,
            identity: RwLock::new(Arc::new(identity)),
            trust,
            names,
            files: ExportedFiles::new("the delegated proxy", "-exppxy:", template.unwrap_or_default()),
            group,
            rng: Mutex::new(rng),
            failure: Mutex::default(),
        })))
    }

    pub(super) fn exchange(&self, peer: &LoginPeer) -> GsiServerLogin {
        GsiServerLogin { shared: self.0.clone(), peer: peer.clone(), stage: Stage::Begin, cipher: None }
    }
}

impl GsiShared {
    /// Returns a new challenge.
    pub(super) fn challenge(&self) -> Challenge {
        Challenge::random(self.rng.lock().unwrap_or_else(PoisonError::into_inner).as_mut())
    }

    /// Signs the challenge of a client.
    pub(super) fn sign(&self, tag: &Challenge) -> Result<Vec<u8>, String> {
        self.identity().signer.sign_raw(tag.as_bytes())
    }

    fn identity(&self) -> Arc<ServerIdentity> {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the certificate, the authorities and the map of subjects again.
    fn refresh_certificates(&self) -> Result<(), String> {
        let identity = ServerIdentity::read(&self.settings, self.trust.as_ref());
        let identity = identity.map_err(|error| format!("the previous certificate stays in use: {error}"));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = identity.as_ref().err().cloned();
        let mut failures = Vec::new();
        match identity {
            Ok(identity) => {
                *self.identity.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(identity);
            }
            Err(error) => failures.push(error),
        }
        failures.extend(self.trust.refresh().err());
        failures.extend(self.names.subjects.as_ref().and_then(|names| names.refresh().err()));
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }
}

impl ServerProtocol for GsiServer {
    fn id(&self) -> &'static str {
        GSI
    }

    fn parameters(&self) -> String {
        offer::parameters(&self.0.identity().authorities)
    }

    fn credential_bytes_min(&self) -> usize {
        CREDENTIAL_BYTES_MIN
    }

    fn wants_host_name(&self) -> bool {
        self.0.settings.old_clients.iter().any(PeerHostPattern::needs_host_name)
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(self.exchange(peer))
    }

    fn begin_with_chain(&self, peer: &LoginPeer, chain: Arc<[Vec<u8>]>) -> Option<Box<dyn ServerLogin>> {
        let login = self.exchange(peer);
        let identify = move |now| {
            let identity = login.shared.trust.verify(&chain, ChainRole::Client, now)?;
            login.entity(&identity, &chain, None).map(Entity::new)
        };
        Some(Box::new(ChainLogin { protocol: GSI, identify: Box::new(identify) }))
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        let shared = self.0.clone();
        let certificates = FileRefresh::new(self.0.settings.refresh, move || shared.refresh_certificates());
        let groups = self.0.names.groups.clone().map(|groups| {
            let read = move || groups.refresh().map_err(|error| error.to_string());
            FileRefresh::new(self.0.settings.groups_refresh, read)
        });
        std::iter::once(certificates).chain(groups).collect()
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        let mut warnings = self.0.trust.warnings(now, soon);
        if self.0.settings.mapping == NameMapping::Required {
            let warning = self.0.names.subjects.as_ref().and_then(|names| names.warning());
            warnings.extend(warning.map(|text| format!("{text}, so -gmapopt:usemap refuses all clients")));
        }
        warnings
    }

    fn exported_files(&self) -> Option<&ExportedFiles> {
        let delegation = self.0.settings.delegation.as_ref();
        delegation.is_some_and(|delegation| delegation.file.is_some()).then_some(&*self.0.files)
    }

    fn certificate(&self) -> Option<CertificateInForce> {
        let path = self.0.settings.certificate.clone();
        let identity = self.0.identity();
        Some(CertificateInForce { path, not_before: identity.not_before, expires: identity.expires })
    }

    fn state(&self) -> String {
        let shared = &self.0;
        let now = SystemTime::now();
        let days = shared.identity().expires.duration_since(now).map_or(0, |left| left.as_secs() / 86_400);
        let certificate = shared.settings.certificate.display();
        let state =
            format!("gsi: certificate {certificate}, valid for {days} days; {}", shared.trust.state());
        match shared.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(failure) => format!("{state}; {failure}"),
            None => state,
        }
    }
}

/// The next message that is expected.
pub(super) enum Stage {
    /// The first one.
    Begin,
    /// The certificates of the client.
    Certificate(Box<SentAgreement>),
    /// The proxy that the client signs.
    Proxy(Box<SentProxyRequest>),
    /// None.
    Over,
}

/// What the server has sent in its first message.
pub(super) struct SentAgreement {
    pub(super) agreement: KeyAgreement,
    pub(super) challenge: Challenge,
    pub(super) options: u32,
    /// The client signs its key agreement.
    pub(super) is_signed: bool,
    pub(super) begun: SystemTime,
}

/// An exchange with one peer.
pub(super) struct GsiServerLogin {
    pub(super) shared: Arc<GsiShared>,
    pub(super) peer: LoginPeer,
    pub(super) stage: Stage,
    pub(super) cipher: Option<Arc<SessionCipher>>,
}

impl ServerLogin for GsiServerLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let step = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begin => self.send_certificate(credentials, now),
            Stage::Certificate(sent) => self.take_certificate(credentials, &sent, now),
            Stage::Proxy(sent) => self.take_proxy(credentials, *sent, now),
            Stage::Over => Err("the exchange is over".to_owned()),
        };
        step.unwrap_or_else(|reason| ServerStep::Refused(RefusedLogin::new(GSI, reason)))
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.cipher.clone().map(|cipher| cipher as Arc<dyn SignatureCipher>)
    }
}

impl GsiServerLogin {
    fn send_certificate(&mut self, credentials: &[u8], now: SystemTime) -> Result<ServerStep, String> {
        let message = messages::decode(credentials, step::CLIENT_REQUEST)?;
        let version = message.number(SutField::VERSION).unwrap_or(0);
        let is_signed = version >= VERSION_MIN;
        if !is_signed && !self.accepts_old_client() {
            return Err(format!(
                "version {version} of the client does not protect the key agreement; it needs a client of XRootD 4.9 or later, or gsi.compat"
            ));
        }
        let authorities = message.text(SutField::ISSUER_HASH).unwrap_or_default();
        if !messages::hashes(authorities).any(|hash| self.shared.trust.has_authority(hash)) {
            return Err(format!("unknown CA: cannot verify client credentials: {authorities}"));
        }
        // Nothing is delegated with a key that an attacker could know.
        let known = if is_signed { client_option::KNOWN } else { client_option::CREATE_PROXY };
        let options = message.number(SutField::CLIENT_OPTIONS).unwrap_or(0) & known;
        let main = message.field(SutField::MAIN).ok_or("the inner message is missing")?;
        let main = messages::decode_main(main, step::CLIENT_REQUEST)?;
        let tag = Challenge::of_peer(&main).ok_or("the challenge of the client is missing or malformed")?;
        // The exponentiation takes milliseconds, so it is not done with the lock.
        let (exponent, challenge) = {
            let mut rng = self.shared.rng.lock().unwrap_or_else(PoisonError::into_inner);
            (KeyAgreement::random_exponent(rng.as_mut()), Challenge::random(rng.as_mut()))
        };
        let group = if is_signed { Some(self.shared.group.clone()) } else { DhGroup::fixed() };
        let agreement = group.and_then(|group| KeyAgreement::with_exponent(group, exponent));
        let agreement = agreement.ok_or("no key pair for the key agreement")?;
        let identity = self.shared.identity();
        let settings = &self.shared.settings;
        let main = messages::begin_main(step::SERVER_CERTIFICATE)
            .with(SutField::SIGNED_CHALLENGE, &identity.signer.sign_raw(tag.as_bytes())?)
            .with(SutField::CHALLENGE, challenge.as_bytes())
            .finish();
        let ciphers: Vec<&str> = settings.ciphers.iter().map(|cipher| cipher.name()).collect();
        let reply = messages::begin(step::SERVER_CERTIFICATE).with(SutField::MAIN, &main);
        let reply = match is_signed {
            true => reply.with(SutField::CIPHER, &identity.sign_agreement(&agreement)?),
            false => reply.with(SutField::PUBLIC_KEY, agreement.text().as_bytes()),
        };
        let digests = if is_signed { settings.digests.join(":") } else { OLD_DIGESTS.join(":") };
        let reply = reply
            .with(SutField::CIPHER_NAMES, ciphers.join(":").as_bytes())
            .with(SutField::DIGEST_NAMES, digests.as_bytes())
            .with(SutField::X509, identity.pem.as_bytes())
            .finish();
        let sent = SentAgreement { agreement, challenge, options, is_signed, begun: now };
        self.stage = Stage::Certificate(Box::new(sent));
        Ok(ServerStep::Continue(reply))
    }

    fn take_certificate(
        &mut self,
        credentials: &[u8],
        sent: &SentAgreement,
        now: SystemTime,
    ) -> Result<ServerStep, String> {
        check_time(sent.begun, now)?;
        let message = messages::decode(credentials, step::CLIENT_CERTIFICATE)?;
        let client = match sent.is_signed {
            true => self.signed_agreement(&message)?,
            false => old_agreement(&message, &self.shared.settings.ciphers)?,
        };
        let secret = sent.agreement.agree(&client.peer).map_err(|error| format!("the client: {error}"))?;
        let cipher = match sent.is_signed {
            true => SessionCipher::new(client.cipher, &secret),
            false => SessionCipher::of_old_agreement(client.cipher, &secret),
        };
        let cipher = cipher.ok_or("the common secret is too short")?;
        let main = message.field(SutField::MAIN).ok_or("the inner message is missing")?;
        let main = cipher.open(main).ok_or("the inner message cannot be decrypted")?;
        let main = messages::decode_main(main.expose(), step::CLIENT_CERTIFICATE)?;
        let chain = client_chain(&main, sent.options)?;
        let leaf = chain.first().ok_or("the certificates of the client are missing")?;
        let public_key = leaf.public_key()?;
        if client.public_key.is_some_and(|key| key != public_key) {
            return Err("the public key is not that of the certificate".to_owned());
        }
        let key = RsaVerifier::from_public_key(&public_key)
            .ok_or("the public key of the client is not an RSA key")?;
        self.check_key_size(key.bits())?;
        sent.challenge.check_signed(&main, &key)?;
        let encoded: Vec<Vec<u8>> = chain.iter().map(|certificate| certificate.der.clone()).collect();
        let identity = self.shared.trust.verify(&encoded, ChainRole::Client, now)?;
        let fields = self.entity(&identity, &encoded, main.text(SutField::USER))?;
        let cipher = self.cipher.insert(Arc::new(cipher)).clone();
        if !self.asks_for_proxy(sent.options, &identity) {
            return Ok(ServerStep::Done(Entity::new(fields)));
        }
        let tag = Challenge::of_peer(&main).ok_or("random tag missing - protocol error")?;
        let verified = VerifiedClient { chain, key, identity, fields, begun: sent.begun };
        self.request_proxy(verified, &tag, &cipher)
    }

    /// Returns the key agreement of a client, which its key signs.
    fn signed_agreement(&self, message: &SutMessage<'_>) -> Result<ClientAgreement, String> {
        let settings = &self.shared.settings;
        let cipher = chosen_cipher(message, &settings.ciphers)?;
        check_digest(message, &settings.digests)?;
        let puk = message.text(SutField::PUBLIC_KEY).and_then(|text| pem::single(text, pem::PUBLIC_KEY));
        let puk = puk.ok_or("the public key of the client is missing or malformed")?;
        let key =
            RsaVerifier::from_public_key(&puk).ok_or("the public key of the client is not an RSA key")?;
        self.check_key_size(key.bits())?;
        let signed = message.field(SutField::CIPHER).ok_or("the key agreement of the client is missing")?;
        let text = key.recover(signed).ok_or("the key agreement is not signed by the key of the client")?;
        let peer = PeerAgreement::decode(&text).map_err(|error| format!("the client: {error}"))?;
        Ok(ClientAgreement { cipher, peer, public_key: Some(puk) })
    }

    /// Reports whether the client need not sign its key agreement.
    fn accepts_old_client(&self) -> bool {
        let (host, address) = (self.peer.host.as_str(), Some(self.peer.address.ip()));
        self.shared.settings.old_clients.iter().any(|hosts| hosts.matches(host, address))
    }

    /// Returns an error if the key of a client is too short.
    pub(super) fn check_key_size(&self, bits: usize) -> Result<(), String> {
        match self.shared.settings.key_bits_min {
            least if bits < least => Err(format!("the key has {bits} bits, {least} are needed")),
            _ => Ok(()),
        }
    }

    /// Returns the identity of the owner of a verified chain, who asks for the name `user`.
    pub(super) fn entity(
        &self,
        identity: &GridIdentity,
        chain: &[Vec<u8>],
        user: Option<&str>,
    ) -> Result<EntityFields, String> {
        let GsiShared { settings, names, .. } = &*self.shared;
        let rules = IdentityRules { protocol: GSI, settings, names };
        rules.entity(identity, chain, &self.peer.host, user)
    }
}

pub(super) fn check_time(begun: SystemTime, now: SystemTime) -> Result<(), String> {
    let seconds = now.duration_since(begun).map_or(0, |since| since.as_secs());
    if seconds > EXCHANGE_SECONDS_MAX {
        return Err(format!("the client took {seconds} s, {EXCHANGE_SECONDS_MAX} s are allowed"));
    }
    Ok(())
}

/// The key agreement of a client.
struct ClientAgreement {
    cipher: GsiCipher,
    peer: PeerAgreement,
    /// The key that signs it.
    public_key: Option<Vec<u8>>,
}

/// Returns the key agreement of a client that does not sign it.
fn old_agreement(message: &SutMessage<'_>, offered: &[GsiCipher]) -> Result<ClientAgreement, String> {
    let choice = message.text(SutField::CIPHER_NAMES).ok_or("the choice of a cipher is missing")?;
    let cipher = GsiCipher::from_name(choice).filter(|cipher| offered.contains(cipher));
    let cipher = cipher.ok_or_else(|| format!("unsupported cipher chosen by the client: {choice}"))?;
    check_digest(message, &OLD_DIGESTS.map(str::to_owned))?;
    let text = message.field(SutField::PUBLIC_KEY).ok_or("the key agreement of the client is missing")?;
    let peer = PeerAgreement::decode(text).map_err(|error| format!("the client: {error}"))?;
    Ok(ClientAgreement { cipher, peer, public_key: None })
}

/// Returns the cipher that the client has chosen: `<name>#<length of the initialization vector>`.
fn chosen_cipher(message: &SutMessage<'_>, offered: &[GsiCipher]) -> Result<GsiCipher, String> {
    let choice = message.text(SutField::CIPHER_NAMES).ok_or("the choice of a cipher is missing")?;
    let (name, length) = choice.split_once('#').ok_or("the choice of a cipher is malformed")?;
    let chosen = GsiCipher::from_name(name).filter(|cipher| offered.contains(cipher));
    match chosen {
        Some(cipher) if length == IV_BYTES.to_string() => Ok(cipher),
        _ => Err(format!("unsupported cipher chosen by the client: {choice}")),
    }
}

fn check_digest(message: &SutMessage<'_>, offered: &[String]) -> Result<(), String> {
    let choice = message.text(SutField::DIGEST_NAMES).ok_or("the choice of a digest is missing")?;
    if offered.iter().any(|name| name == choice) || (offered.is_empty() && choice == DIGEST) {
        return Ok(());
    }
    Err(format!("unsupported MD chosen by the client: {choice}"))
}

/// Returns the certificates of a client.
pub(super) fn client_chain(main: &SutMessage<'_>, options: u32) -> Result<Vec<GridCertificate>, String> {
    let text = main.text(SutField::X509).ok_or("the certificates of the client are missing")?;
    if pem::sections(text)?.iter().any(|section| section.label != pem::CERTIFICATE) {
        return Err("the client sends something else than certificates, such as a private key".to_owned());
    }
    let chain = GridCertificate::chain_of_pem(text)?;
    let least = if options & client_option::CREATE_PROXY != 0 { 2 } else { 1 };
    if chain.len() < least {
        return Err(format!("the client sends {} certificates, {least} are needed", chain.len()));
    }
    Ok(chain)
}
