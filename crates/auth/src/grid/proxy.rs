//! Rules of proxies (RFC 3820): their extension, and what each may be.

use super::certificate::{GridCertificate, key_usage};
use super::der::{DerReader, MalformedDer, tag};
use super::fault::ChainFaultReason;
use super::settings::GridTrustSettings;

/// The policy of proxies with all rights of their issuer, encoded: 1.3.6.1.5.5.7.21.1.
pub(crate) const INHERIT_ALL_POLICY: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
/// The policy of limited proxies, encoded: 1.3.6.1.4.1.3536.1.1.1.9.
pub(crate) const LIMITED_POLICY: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

/// The last common name of proxies of the form before RFC 3820.
pub(crate) const LEGACY_FULL: &str = "proxy";
/// The last common name of limited proxies of that form.
pub(crate) const LEGACY_LIMITED: &str = "limited proxy";

/// The rights that a proxy takes over from its issuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProxyPolicy {
    InheritAll,
    Limited,
    /// None of the issuer's.
    Independent,
    /// Those of a policy in a language that is not known.
    Other,
}

/// The extension `proxyCertInfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProxyExtension {
    pub(super) is_critical: bool,
    path_length: Option<u32>,
    policy: ProxyPolicy,
    /// Whether there is a policy text, which inheritAll and independent must not have.
    has_text: bool,
}

impl ProxyExtension {
    /// Reads the value of the extension. The draft of RFC 3820 has the path length after the policy.
    pub(super) fn read(value: &[u8], is_critical: bool) -> Result<Self, MalformedDer> {
        let mut fields = DerReader::of_element(value, tag::SEQUENCE)?;
        let mut path_length = None;
        if let Some(number) = fields.optional(&[tag::INTEGER])? {
            path_length = Some(DerReader::new(number.whole).number()?);
        }
        let mut policy = fields.sequence()?;
        if let Some(number) = fields.optional(&[tag::CONTEXT_1])? {
            if path_length.is_some() {
                return Err(MalformedDer);
            }
            let mut number = DerReader::new(number.content);
            path_length = Some(number.number()?);
            number.end()?;
        }
        fields.end()?;
        let language = match policy.read_as(tag::OBJECT_IDENTIFIER)?.content {
            INHERIT_ALL_POLICY => ProxyPolicy::InheritAll,
            INDEPENDENT => ProxyPolicy::Independent,
            LIMITED_POLICY => ProxyPolicy::Limited,
            _ => ProxyPolicy::Other,
        };
        let has_text = policy.optional(&[tag::OCTET_STRING])?.is_some();
        policy.end()?;
        Ok(Self { is_critical, path_length, policy: language, has_text })
    }
}

/// A kind of proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProxyKind {
    pub(super) is_limited: bool,
    /// Maximum number of proxies below this one.
    pub(super) path_length: Option<u32>,
}

/// Reports whether a certificate claims to be a proxy, whether or not it is a valid one.
pub(super) fn is_proxy(certificate: &GridCertificate) -> bool {
    certificate.extensions.proxy.is_some() || has_legacy_form(certificate)
}

fn has_legacy_form(certificate: &GridCertificate) -> bool {
    let subject = certificate.subject();
    matches!(subject.last_common_name(), Some(LEGACY_FULL | LEGACY_LIMITED))
        && subject.is_proxy_of(certificate.issuer())
}

/// Checks a proxy, except its signature, against its issuer, which is the next certificate of the
/// chain. `below` is the number of proxies below this one, and `purpose` the extended key usage of the
/// role.
pub(super) fn check_proxy(
    proxy: &GridCertificate,
    issuer: &GridCertificate,
    below: usize,
    purpose: &[u8],
    settings: &GridTrustSettings,
) -> Result<ProxyKind, ChainFaultReason> {
    let refused = |what| Err(ChainFaultReason::Proxy(what));
    if proxy.issuer() != issuer.subject() {
        return refused("the next certificate is not its issuer; proxies come first, each before its issuer");
    }
    if !proxy.subject().is_proxy_of(issuer.subject()) {
        return refused("its subject is not that of its issuer and one common name");
    }
    if issuer.extensions.is_authority() {
        return refused("it was issued by an authority");
    }
    if !issuer.extensions.allows(key_usage::DIGITAL_SIGNATURE) {
        return refused("the key usage of its issuer does not allow signatures");
    }
    check_extensions(proxy, purpose)?;
    let kind = kind_of(proxy, settings)?;
    if kind.path_length.is_some_and(|limit| below > usize::try_from(limit).unwrap_or(usize::MAX)) {
        return refused("more proxies follow it than its path length allows");
    }
    Ok(kind)
}

fn check_extensions(proxy: &GridCertificate, purpose: &[u8]) -> Result<(), ChainFaultReason> {
    let refused = |what| Err(ChainFaultReason::Proxy(what));
    let extensions = &proxy.extensions;
    if extensions.is_authority() || extensions.has(key_usage::KEY_CERT_SIGN) {
        return refused("it claims to be an authority");
    }
    if extensions.has_alternative_name {
        return refused("it has an alternative name");
    }
    if extensions.has_name_constraints {
        return refused("it has name constraints");
    }
    if !extensions.allows(key_usage::DIGITAL_SIGNATURE) {
        return refused("its key usage does not allow signatures");
    }
    if extensions.purposes.as_ref().is_some_and(|all| !all.iter().any(|one| &**one == purpose)) {
        return refused("its extended key usage does not allow this use");
    }
    if extensions.has_unknown_critical {
        return refused("it has a critical extension that is not supported");
    }
    Ok(())
}

fn kind_of(proxy: &GridCertificate, settings: &GridTrustSettings) -> Result<ProxyKind, ChainFaultReason> {
    let refused = |what| Err(ChainFaultReason::Proxy(what));
    let Some(extension) = proxy.extensions.proxy else {
        if !settings.allow_legacy {
            return refused("it has the form before RFC 3820; allow it by gsi.proxytypes legacy");
        }
        let is_limited = proxy.subject().last_common_name() == Some(LEGACY_LIMITED);
        return Ok(ProxyKind { is_limited, path_length: None });
    };
    if !extension.is_critical {
        return refused("its extension proxyCertInfo is not critical");
    }
    let is_limited = match extension.policy {
        ProxyPolicy::InheritAll if extension.has_text => return refused("its policy has a text"),
        ProxyPolicy::InheritAll => false,
        ProxyPolicy::Limited => true,
        ProxyPolicy::Independent => return refused("it is independent and has no rights of its issuer"),
        ProxyPolicy::Other => return refused("the language of its policy is not supported"),
    };
    Ok(ProxyKind { is_limited, path_length: extension.path_length })
}
