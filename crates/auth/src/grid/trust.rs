//! [`GridTrust`]: verification of chains by the authorities of directories.

use super::certificate::{GridCertificate, key_usage};
use super::directory::AuthorityStore;
use super::downloaded_lists::{CrlSource, DownloadedList, ListRefusal, split_lists};
use super::fault::{ChainFault, ChainFaultReason, GridTrustError};
use super::limits::{CERTIFICATES_MAX, CHAIN_BYTES_MAX};
use super::path::{SignatureBudget, find_path};
use super::proxy::{check_proxy, is_proxy};
use super::settings::{ChainRole, GridTrustSettings};
use super::verified::VerifiedChain;
use super::voms::{AttributeVerifier, VomsMembership};
use super::voms_directory::VomsDirectory;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// Object identifier of the extended key usage of clients of TLS.
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
/// Object identifier of the extended key usage of servers of TLS.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

/// The authorities of directories, and the rules by which chains are verified.
pub struct GridTrust {
    settings: GridTrustSettings,
    store: RwLock<Arc<AuthorityStore>>,
    /// Held while a downloaded list is added and while the store is replaced, so that no list is added
    /// to a store that is no longer in force.
    downloads: Mutex<()>,
    /// Held while the directories are read again.
    refreshes: Mutex<()>,
    /// The signers of attributes; without it, attributes are not used.
    voms: Option<VomsDirectory>,
}

impl std::fmt::Debug for GridTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridTrust").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The proxies of a chain, taken together.
struct ProxySummary {
    is_limited: bool,
    path_left: Option<u32>,
}

impl GridTrust {
    /// Reads the directories. Blocks.
    ///
    /// # Errors
    /// A directory cannot be read, or there is no authority that can be used.
    pub fn open(settings: GridTrustSettings) -> Result<Self, GridTrustError> {
        let store = RwLock::new(Arc::new(AuthorityStore::read(&settings)?));
        Ok(Self::with_store(settings, store))
    }

    /// Returns authorities that accept no chain until [`Self::refresh`] succeeds.
    #[must_use]
    pub fn unread(settings: GridTrustSettings) -> Self {
        Self::with_store(settings, RwLock::default())
    }

    fn with_store(settings: GridTrustSettings, store: RwLock<Arc<AuthorityStore>>) -> Self {
        Self { settings, store, downloads: Mutex::default(), refreshes: Mutex::default(), voms: None }
    }

    /// Returns these authorities with signers of attributes. [`VerifiedChain::memberships`] are then
    /// the verified ones.
    #[must_use]
    pub fn with_attributes(self, signers: VomsDirectory) -> Self {
        Self { voms: Some(signers), ..self }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &GridTrustSettings {
        &self.settings
    }

    /// Reads the directories again: those of the authorities and that of the signers, also if the others
    /// cannot be read. The earlier content of those that cannot be read stays in force. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<(), GridTrustError> {
        let signers = self.voms.as_ref().map_or(Ok(()), VomsDirectory::refresh);
        // A read that began earlier must not replace a later one.
        let _turn = self.refreshes.lock().unwrap_or_else(PoisonError::into_inner);
        let store = Arc::new(AuthorityStore::read(&self.settings)?);
        let _one = self.downloads.lock().unwrap_or_else(PoisonError::into_inner);
        store.take_downloaded(&self.store());
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = store;
        signers
    }

    /// Returns the authorities, with the addresses of their revocation lists in the files `HASH.crl_url`
    /// and in the certificates that they have issued for authorities.
    #[must_use]
    pub fn list_sources(&self) -> Vec<CrlSource> {
        self.store().list_sources()
    }

    /// Returns the certificates of the authorities that may end chains, as DER.
    #[must_use]
    pub fn roots(&self) -> Vec<Vec<u8>> {
        let store = self.store();
        let roots = store.authorities().flatten().filter(|authority| authority.is_root);
        roots.map(|authority| authority.certificate.encoded().to_vec()).collect()
    }

    /// Puts a downloaded revocation list of an authority into force, PEM or DER, if its signature is
    /// that of the authority and there is no newer one of the same certificates. It stays in force until
    /// a newer one is added or read from a file. Computes, for large lists up to some hundred
    /// milliseconds.
    ///
    /// # Errors
    /// The reason why the list is not used; an earlier one stays in force.
    pub fn add_downloaded(
        &self,
        source: &CrlSource,
        text: &[u8],
        now: SystemTime,
    ) -> Result<DownloadedList, ListRefusal> {
        let _one = self.downloads.lock().unwrap_or_else(PoisonError::into_inner);
        self.store().add_downloaded(source, text, now)
    }

    /// Returns the downloaded lists of an authority that are in force, as one text to keep.
    #[must_use]
    pub fn downloaded_lists(&self, source: &CrlSource) -> Vec<u8> {
        self.store().downloaded().text_of(source)
    }

    /// Puts the lists of a text of [`Self::downloaded_lists`] into force, as [`Self::add_downloaded`] does.
    ///
    /// # Errors
    /// The reason why one of them is not used, [`ListRefusal::NotValidYet`] before others.
    pub fn add_kept(&self, source: &CrlSource, text: &[u8], now: SystemTime) -> Result<(), ListRefusal> {
        let lists = split_lists(text)?.into_iter();
        let refusals = lists.filter_map(|list| self.add_downloaded(source, list, now).err());
        refusals.min_by_key(|refusal| *refusal != ListRefusal::NotValidYet).map_or(Ok(()), Err)
    }

    /// Reports whether there is an authority of this hash: eight hexadecimal digits of the new or the
    /// old form, which `.0` may follow. The file must have this hash as its name.
    #[must_use]
    pub fn has_authority(&self, hash: &str) -> bool {
        self.store().has(hash.strip_suffix(".0").unwrap_or(hash))
    }

    /// Returns the number of authorities and of revocation lists, for reports.
    #[must_use]
    pub fn state(&self) -> String {
        self.store().report()
    }

    /// Returns reasons for attention: files that are not used, authorities that expire in less than
    /// `soon`, revocation lists that are missing or out of date.
    #[must_use]
    pub fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.store().warnings(&self.settings, now, soon)
    }

    /// Verifies a chain: `chain` is the DER of the leaf first, then of its issuers up to the end
    /// entity, then of intermediate authorities in any order. Computes for some milliseconds.
    ///
    /// # Errors
    /// A rule is violated.
    pub fn verify(
        &self,
        chain: &[Vec<u8>],
        role: ChainRole,
        now: SystemTime,
    ) -> Result<VerifiedChain, ChainFault> {
        let chain = parse(chain)?;
        let proxies = chain.iter().take_while(|certificate| is_proxy(certificate)).count();
        let Some((end_entity, sent)) = chain.get(proxies..).and_then(<[_]>::split_first) else {
            return Err(ChainFaultReason::Proxy("the certificate of the end entity is missing").of(""));
        };
        let leaf = chain.first().unwrap_or(end_entity);
        if proxies > 0 && role == ChainRole::Server {
            return Err(ChainFaultReason::Proxy("servers do not have proxies").of(leaf.subject().text()));
        }
        let summary = self.check_proxies(&chain, proxies, role, now)?;
        check_end_entity(end_entity, role, now).map_err(|reason| reason.of(end_entity.subject().text()))?;
        let store = self.store();
        let path = find_path(&store, end_entity, sent, now, &mut SignatureBudget::default())?;
        path.check(&store, &self.settings, role.into(), now)?;
        check_proxy_signatures(&chain, proxies, role)?;
        let memberships = self.memberships(&store, chain.get(..proxies).unwrap_or_default(), end_entity, now);
        let of_proxies = chain.iter().take(proxies).map(|proxy| proxy.not_after);
        let valid_until = of_proxies.chain(path.valid_until()).min().unwrap_or(now);
        Ok(VerifiedChain {
            end_entity: end_entity.subject().text().to_owned(),
            end_entity_hash: end_entity.subject().hash(),
            common_name: end_entity.subject().last_common_name().map(str::to_owned),
            email: end_entity.email().map(str::to_owned),
            leaf: leaf.subject().text().to_owned(),
            is_limited: summary.is_limited,
            proxies,
            intermediates: path.intermediates(),
            proxy_path_left: summary.path_left,
            valid_until,
            memberships,
            leaf_key: leaf.public_key().to_vec(),
        })
    }

    /// Returns the hashes of the issuer of a certificate, new and old form, as peers name it (`ca:` of a
    /// server, `issuer_hash` of a client). The certificate is that of an end entity. Nothing is
    /// verified.
    ///
    /// # Errors
    /// The certificate is malformed, or the directories do not have its issuer.
    pub fn authority_hashes(&self, certificate: &[u8]) -> Result<(String, String), ChainFault> {
        let certificate = GridCertificate::parse(certificate).map_err(|reason| reason.of(""))?;
        let issuer = certificate.issuer();
        if self.store().of_name(issuer).next().is_none() {
            let reason = ChainFaultReason::UnknownAuthority(issuer.text().to_owned());
            return Err(reason.of(certificate.subject().text()));
        }
        Ok((issuer.hash(), issuer.old_hash()))
    }

    fn memberships(
        &self,
        store: &AuthorityStore,
        proxies: &[GridCertificate],
        end_entity: &GridCertificate,
        now: SystemTime,
    ) -> Vec<VomsMembership> {
        let Some(directory) = &self.voms else { return Vec::new() };
        let verifier = AttributeVerifier { store, settings: &self.settings, directory, now };
        verifier.memberships(proxies, end_entity)
    }

    fn store(&self) -> Arc<AuthorityStore> {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks the first `count` certificates, which are proxies, except for their signatures. Each is issued by the
    /// next one.
    fn check_proxies(
        &self,
        chain: &[GridCertificate],
        count: usize,
        role: ChainRole,
        now: SystemTime,
    ) -> Result<ProxySummary, ChainFault> {
        let purpose = if role == ChainRole::Server { SERVER_AUTH } else { CLIENT_AUTH };
        let mut summary = ProxySummary { is_limited: false, path_left: None };
        for (below, pair) in chain.windows(2).take(count).enumerate() {
            let [proxy, issuer] = pair else { continue };
            let fault = |reason: ChainFaultReason| reason.of(proxy.subject().text());
            proxy.check_time(now).map_err(fault)?;
            let key = proxy.key().map_err(|malformed| fault(malformed.into()))?;
            key.check_strength(self.settings.rsa_bits()).map_err(fault)?;
            let with_sha1 = accepts_sha1(role, below);
            if !with_sha1 && !proxy.signed().kind.is_sha2() {
                return Err(fault(ChainFaultReason::SignatureAlgorithm));
            }
            let kind = check_proxy(proxy, issuer, below, purpose, &self.settings).map_err(fault)?;
            summary.is_limited |= kind.is_limited;
            let left = |limit: u32| limit.saturating_sub(u32::try_from(below).unwrap_or(u32::MAX));
            summary.path_left = summary.path_left.into_iter().chain(kind.path_length.map(left)).min();
        }
        Ok(summary)
    }
}

/// Reports whether a proxy at this place may be signed with SHA-1.
fn accepts_sha1(role: ChainRole, below: usize) -> bool {
    role == ChainRole::Delegation && below == 0
}

/// Checks the signatures of the first `count` certificates, which are proxies, from the end entity downward. A peer
/// can make proxies of any number with keys as slow as it likes, but the first one only with the key of an end
/// entity, so this follows the check of the path of the end entity.
fn check_proxy_signatures(
    chain: &[GridCertificate],
    count: usize,
    role: ChainRole,
) -> Result<(), ChainFault> {
    for (below, pair) in chain.windows(2).take(count).enumerate().rev() {
        let [proxy, issuer] = pair else { continue };
        let fault = |reason: ChainFaultReason| reason.of(proxy.subject().text());
        let key = issuer.key().map_err(|malformed| fault(malformed.into()))?;
        if !proxy.signed().is_of(&key, accepts_sha1(role, below)) {
            return Err(fault(ChainFaultReason::Signature));
        }
    }
    Ok(())
}

fn parse(chain: &[Vec<u8>]) -> Result<Vec<GridCertificate>, ChainFault> {
    let refused = |what| Err(ChainFaultReason::Size(what).of(""));
    if chain.is_empty() || chain.len() > CERTIFICATES_MAX {
        return refused("a chain has 1 to 20 certificates");
    }
    if chain.iter().map(Vec::len).sum::<usize>() > CHAIN_BYTES_MAX {
        return refused("a chain is at most 128 KiB");
    }
    chain.iter().map(|one| GridCertificate::parse(one).map_err(|reason| reason.of(""))).collect()
}

fn check_end_entity(
    certificate: &GridCertificate,
    role: ChainRole,
    now: SystemTime,
) -> Result<(), ChainFaultReason> {
    certificate.check_time(now)?;
    if certificate.subject().is_empty() {
        return Err(ChainFaultReason::Malformed("the subject is empty"));
    }
    if certificate.extensions.is_authority() {
        return Err(ChainFaultReason::Path("an authority is not an end entity".to_owned()));
    }
    let usage = match role {
        ChainRole::Client | ChainRole::Delegation => key_usage::DIGITAL_SIGNATURE,
        ChainRole::Server => key_usage::DIGITAL_SIGNATURE | key_usage::KEY_ENCIPHERMENT,
    };
    if !certificate.extensions.allows(usage) {
        return Err(ChainFaultReason::KeyUsage("signatures"));
    }
    Ok(())
}
