//! The path from an end entity to an authority of a directory.
//!
//! [`find_path`] finds the authorities by names and signatures, so that a peer cannot make the library
//! try many paths. Authorities that the peer sends count only if the directory leads to them. This is found out
//! from the directory downward, so a peer without a certificate of a known authority cannot have signatures verified
//! by keys of its own, which may be as slow as it likes. [`CertificatePath::check`] has the library validate the path that was found
//! (RFC 5280), and adds what the library leaves to its callers: key usage, the path length of the
//! root, the strength of keys, policies of grids and revocation lists.

use super::certificate::{GridCertificate, key_usage};
use super::directory::AuthorityStore;
use super::downloaded_lists::replaces;
use super::fault::{ChainFault, ChainFaultReason};
use super::name::DistinguishedName;
use super::revocation::RevocationList;
use super::settings::{ChainRole, CrlLevel, GridTrustSettings};
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::aws_lc_rs::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Maximum number of intermediate authorities. The library has the same limit.
const INTERMEDIATES_MAX: usize = 6;
/// Maximum number of signatures for each purpose of [`SignatureBudget`].
const SIGNATURES_MAX: usize = 40;

/// The signatures that may still be verified.
pub(super) struct SignatureBudget {
    /// To find out which authorities of a peer are those of the directory.
    anchors: usize,
    /// To find paths.
    paths: usize,
}

impl Default for SignatureBudget {
    fn default() -> Self {
        Self { anchors: SIGNATURES_MAX, paths: SIGNATURES_MAX }
    }
}

#[cfg(test)]
impl SignatureBudget {
    /// Returns the number of signatures that were verified.
    pub(super) fn used(&self) -> usize {
        2 * SIGNATURES_MAX - self.anchors - self.paths
    }
}

/// The signatures that are accepted.
static ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 7] = [
    ECDSA_P256_SHA256,
    ECDSA_P256_SHA384,
    ECDSA_P384_SHA256,
    ECDSA_P384_SHA384,
    RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512,
];

/// A path: the end entity first, the root last.
pub(super) struct CertificatePath<'a>(Vec<&'a GridCertificate>);

/// The use of the key of the end entity of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathPurpose {
    Client,
    Server,
    /// Signatures of attributes.
    AttributeSigner,
}

impl From<ChainRole> for PathPurpose {
    fn from(role: ChainRole) -> Self {
        match role {
            ChainRole::Client | ChainRole::Delegation => Self::Client,
            ChainRole::Server => Self::Server,
        }
    }
}

/// The search for a path.
struct PathSearch<'a, 'b> {
    store: &'a AuthorityStore,
    /// The certificates of the peer to which the directory leads.
    sent: Vec<&'a GridCertificate>,
    now: SystemTime,
    /// The signatures that may still be verified.
    signatures: &'b mut usize,
    /// The reason of the most promising failure.
    fault: Option<ChainFault>,
}

/// Finds the path of an end entity. `sent` are the other certificates of the peer, whose paths share
/// one budget where it can send several.
pub(super) fn find_path<'a>(
    store: &'a AuthorityStore,
    end_entity: &'a GridCertificate,
    sent: &'a [GridCertificate],
    now: SystemTime,
    signatures: &mut SignatureBudget,
) -> Result<CertificatePath<'a>, ChainFault> {
    let SignatureBudget { anchors, paths } = signatures;
    let mut search = PathSearch { store, sent: Vec::new(), now, signatures: anchors, fault: None };
    let sent = search.anchored(end_entity, sent);
    let mut search = PathSearch { sent, signatures: paths, ..search };
    let mut path = vec![end_entity];
    if search.extend(&mut path) {
        return Ok(CertificatePath(path));
    }
    let unknown = || {
        let issuer = end_entity.issuer().text().to_owned();
        ChainFaultReason::UnknownAuthority(issuer).of(end_entity.subject().text())
    };
    Err(search.fault.unwrap_or_else(unknown))
}

impl<'a> PathSearch<'a, '_> {
    /// Returns those of the certificates of a peer that could be above the end entity and that the directory leads
    /// to: each was issued by an authority of the directory or by one of the others. No signature is verified with
    /// the key of another one.
    fn anchored(
        &mut self,
        end_entity: &GridCertificate,
        sent: &'a [GridCertificate],
    ) -> Vec<&'a GridCertificate> {
        let mut names = vec![end_entity.issuer()];
        let mut at = 0;
        while let Some(name) = names.get(at).copied() {
            at += 1;
            for one in sent.iter().filter(|one| one.subject() == name) {
                if !names.contains(&one.issuer()) {
                    names.push(one.issuer());
                }
            }
        }
        let above: Vec<_> = sent.iter().filter(|one| names.contains(&one.subject())).collect();
        let mut found: Vec<&'a GridCertificate> = Vec::new();
        for head in &above {
            let mut local = self.store.of_name(head.issuer()).map(|known| &known.certificate);
            if local.any(|issuer| self.is_issuer(head, issuer)) {
                found.push(head);
            }
        }
        let mut at = 0;
        while let Some(issuer) = found.get(at).copied() {
            at += 1;
            for head in above.iter().filter(|head| head.issuer() == issuer.subject()) {
                let is_known = found.iter().any(|known| std::ptr::eq(*known, *head));
                if !is_known && self.is_issuer(head, issuer) {
                    found.push(head);
                }
            }
        }
        found
    }

    /// Reports whether a certificate was issued by this authority. Notes the reason if it was not.
    fn is_issuer(&mut self, head: &GridCertificate, issuer: &GridCertificate) -> bool {
        self.check_issuer(head, issuer).map_err(|fault| self.note(fault)).is_ok()
    }

    /// Extends the path to a root, and reports whether there is one.
    fn extend(&mut self, path: &mut Vec<&'a GridCertificate>) -> bool {
        let Some(head) = path.last().copied() else { return false };
        let local = self.store.of_name(head.issuer()).map(|known| (&known.certificate, known.is_root));
        let sent = self.sent.iter().filter(|one| one.subject() == head.issuer()).map(|one| (*one, false));
        let issuers: Vec<_> = local.chain(sent).collect();
        for (issuer, is_root) in issuers {
            let is_in_path = |one: &&GridCertificate| {
                one.public_key() == issuer.public_key() && one.subject() == issuer.subject()
            };
            if path.iter().any(is_in_path) {
                continue;
            }
            if !self.is_issuer(head, issuer) {
                continue;
            }
            path.push(issuer);
            if is_root || (path.len() <= INTERMEDIATES_MAX + 1 && self.extend(path)) {
                return true;
            }
            path.pop();
        }
        false
    }

    fn check_issuer(&mut self, head: &GridCertificate, issuer: &GridCertificate) -> Result<(), ChainFault> {
        let of_issuer = |reason: ChainFaultReason| reason.of(issuer.subject().text());
        let of_head = |reason: ChainFaultReason| reason.of(head.subject().text());
        if !issuer.extensions.is_authority() {
            return Err(of_head(ChainFaultReason::Path("its issuer is not an authority".to_owned())));
        }
        issuer.check_time(self.now).map_err(of_issuer)?;
        let signed = head.signed();
        if !signed.kind.is_sha2() {
            return Err(of_head(ChainFaultReason::SignatureAlgorithm));
        }
        *self.signatures = self
            .signatures
            .checked_sub(1)
            .ok_or_else(|| of_head(ChainFaultReason::Size("too many authorities of the same name")))?;
        let key = issuer.key().map_err(|malformed| of_issuer(malformed.into()))?;
        if signed.is_of(&key, false) { Ok(()) } else { Err(of_head(ChainFaultReason::Signature)) }
    }

    /// Keeps a reason. A wrong signature is the least telling one, because another authority may have
    /// the same name.
    fn note(&mut self, fault: ChainFault) {
        let is_vague = |fault: &ChainFault| fault.reason == ChainFaultReason::Signature;
        if self.fault.as_ref().is_none_or(is_vague) {
            self.fault = Some(fault);
        }
    }
}

impl CertificatePath<'_> {
    /// Returns the names of the path, that of the root last.
    pub(super) fn names(&self) -> Vec<&DistinguishedName> {
        self.0.iter().map(|certificate| certificate.subject()).collect()
    }

    /// Returns the number of authorities between the end entity and the root.
    pub(super) fn intermediates(&self) -> usize {
        self.0.len().saturating_sub(2)
    }

    /// Returns the end of the validity.
    pub(super) fn valid_until(&self) -> Option<SystemTime> {
        self.0.iter().map(|certificate| certificate.not_after).min()
    }

    /// Checks all rules of the path.
    pub(super) fn check(
        &self,
        store: &AuthorityStore,
        settings: &GridTrustSettings,
        purpose: PathPurpose,
        now: SystemTime,
    ) -> Result<(), ChainFault> {
        for certificate in &self.0 {
            let fault = |reason: ChainFaultReason| reason.of(certificate.subject().text());
            certificate.check_time(now).map_err(fault)?;
            let key = certificate.key().map_err(|malformed| fault(malformed.into()))?;
            key.check_strength(settings.rsa_bits()).map_err(fault)?;
        }
        for (below, authority) in self.0.iter().skip(1).enumerate() {
            check_authority(authority, self.intermediates_below(below))
                .map_err(|reason| reason.of(authority.subject().text()))?;
        }
        self.validate(purpose, now)?;
        for (below, pair) in self.0.windows(2).enumerate() {
            let [certificate, issuer] = pair else { continue };
            let fault = |reason: ChainFaultReason| reason.of(certificate.subject().text());
            store
                .check_policies(issuer.subject(), certificate.subject())
                .map_err(|reason| fault(ChainFaultReason::SigningPolicy(reason)))?;
            check_revocation(store, settings.crl_level_at(below), certificate, issuer, now).map_err(fault)?;
        }
        Ok(())
    }

    /// Returns the number of the first `count` authorities that path lengths count: self-issued ones
    /// do not count (RFC 5280, 4.2.1.9).
    fn intermediates_below(&self, count: usize) -> usize {
        self.0.iter().skip(1).take(count).filter(|one| !one.is_self_issued()).count()
    }

    /// Has the library validate the path.
    fn validate(&self, purpose: PathPurpose, now: SystemTime) -> Result<(), ChainFault> {
        let [end_entity, intermediates @ .., root] = self.0.as_slice() else {
            return Err(ChainFaultReason::Size("the path is empty").of(""));
        };
        let fault = |error: webpki::Error| {
            ChainFaultReason::Path(format!("{error:?}")).of(end_entity.subject().text())
        };
        let encoded = CertificateDer::from(end_entity.encoded());
        let end_entity = EndEntityCert::try_from(&encoded).map_err(fault)?;
        let root = CertificateDer::from(root.encoded());
        let anchors = [anchor_from_trusted_cert(&root).map_err(fault)?];
        let intermediates: Vec<CertificateDer<'_>> =
            intermediates.iter().map(|one| CertificateDer::from(one.encoded())).collect();
        let time = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
        let check = |usage| {
            end_entity
                .verify_for_usage(&ALGORITHMS, &anchors, &intermediates, time, usage, None, None)
                .map(drop)
        };
        let checked = match purpose {
            PathPurpose::Client => check(KeyUsage::client_auth()),
            PathPurpose::Server => check(KeyUsage::server_auth()),
            // No key usage is defined for these signatures; their certificates are those of hosts.
            PathPurpose::AttributeSigner => {
                check(KeyUsage::server_auth()).or_else(|_| check(KeyUsage::client_auth()))
            }
        };
        checked.map_err(fault)
    }
}

fn check_authority(authority: &GridCertificate, below: usize) -> Result<(), ChainFaultReason> {
    if !authority.extensions.allows(key_usage::KEY_CERT_SIGN) {
        return Err(ChainFaultReason::KeyUsage("signatures of certificates"));
    }
    let limit = authority.extensions.path_length().map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if limit.is_some_and(|limit| below > limit) {
        return Err(ChainFaultReason::Path(
            "more authorities follow it than its path length allows".to_owned(),
        ));
    }
    if authority.extensions.proxy.is_some() {
        return Err(ChainFaultReason::Proxy("an authority has the extension proxyCertInfo"));
    }
    Ok(())
}

/// Checks whether the issuer of a certificate has revoked it.
fn check_revocation(
    store: &AuthorityStore,
    level: CrlLevel,
    certificate: &GridCertificate,
    issuer: &GridCertificate,
    now: SystemTime,
) -> Result<(), ChainFaultReason> {
    let covers = |list: &RevocationList| list.covers(certificate);
    check_lists(store, (level, now), issuer, covers, |list| list.has(certificate.serial()))
}

/// Checks the revocation lists of an authority, as far as `covers` selects them. An error refuses all
/// certificates that these lists would cover; [`ChainFaultReason::Revoked`] only the one of `revokes`.
pub(super) fn check_lists(
    store: &AuthorityStore,
    (level, now): (CrlLevel, SystemTime),
    issuer: &GridCertificate,
    covers: impl Fn(&RevocationList) -> bool,
    revokes: impl Fn(&RevocationList) -> bool,
) -> Result<(), ChainFaultReason> {
    if level == CrlLevel::Ignore {
        return Ok(());
    }
    let unusable = |what: &str| ChainFaultReason::RevocationList(what.to_owned());
    let downloaded = store.downloaded().of(issuer.subject());
    let mut has_list = false;
    for stored in store.revocation_lists(issuer.subject()) {
        let stored = stored.as_ref().map_err(|reason| unusable(&format!("cannot be used ({reason})")))?;
        if downloaded.iter().any(|newer| replaces(newer, &stored.list)) {
            continue;
        }
        if stored.list.issuer() != issuer.subject() {
            return Err(unusable("is of another issuer"));
        }
        if !stored.is_verified && !stored.list.is_signed_by(issuer) {
            return Err(unusable("has a wrong signature"));
        }
        has_list |= check_list(&stored.list, (level, now), &covers, &revokes)?;
    }
    for list in &downloaded {
        has_list |= check_list(list, (level, now), &covers, &revokes)?;
    }
    if !has_list && level >= CrlLevel::Use {
        return Err(unusable("is missing or does not cover it"));
    }
    Ok(())
}

/// Checks one list as [`check_lists`] does. Returns whether `covers` selects it.
fn check_list(
    list: &RevocationList,
    (level, now): (CrlLevel, SystemTime),
    covers: &impl Fn(&RevocationList) -> bool,
    revokes: &impl Fn(&RevocationList) -> bool,
) -> Result<bool, ChainFaultReason> {
    if !covers(list) {
        return Ok(false);
    }
    if revokes(list) {
        return Err(ChainFaultReason::Revoked);
    }
    if !list.is_current(now) {
        if level == CrlLevel::Require {
            return Err(ChainFaultReason::RevocationList("is not within its time".to_owned()));
        }
        let issuer = list.issuer().text();
        tracing::debug!("the revocation list of {issuer:?} is not within its time and still used");
    }
    Ok(true)
}
