//! Chains for tests: valid ones, and ones with a single defect.

use super::certificate::key_usage::{CRL_SIGN, DIGITAL_SIGNATURE, KEY_ENCIPHERMENT};
use super::test_certificates::{
    DAY, DraftCertificate, NOW, Name, RSA_SHA1, TestDirectory, TestKey, basic_constraints, dns_name,
    extension, key_usage, name, oid, pem, pem_of, permitted_hosts, proxy_info, revocation_list,
    server_auth_only,
};

/// The single rule that a chain violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Defect {
    None,
    ExpiredLeaf,
    FutureLeaf,
    ExpiredEndEntity,
    ExpiredIntermediate,
    ExpiredRoot,
    AlteredSignature,
    ForeignLeafSignature,
    ForeignEndEntitySignature,
    UnknownRoot,
    MissingIntermediate,
    AuthorityAsEndEntity,
    AuthorityWithoutConstraints,
    AuthorityWithoutCertSign,
    UnknownCriticalInLeaf,
    UnknownCriticalInEndEntity,
    UnknownCriticalInAuthority,
    ServerPurposeOfEndEntity,
    ServerPurposeOfLeaf,
    EndEntityWithoutSignatures,
    ProxyWithoutSignatures,
    NameOutsideConstraints,
    WeakLeafKey,
    Sha1OnEndEntity,
    ProxyOfForeignSubject,
    ProxyWithTwoNames,
    ProxyWithUnit,
    ProxyOfAuthority,
    EndEntityOfProxy,
    ProxyWithAlternativeName,
    ProxyAsAuthority,
    ProxyNotCritical,
    ProxyIndependent,
    ProxyUnknownLanguage,
    ProxyMalformed,
    ProxyDraft,
    ProxyLegacy,
    RevokedEndEntity,
    RevokedIntermediate,
    MissingList,
    StaleList,
    ForeignList,
    ListOfOtherIssuer,
}

impl Defect {
    pub(super) const ALL: [Self; 43] = [
        Self::None,
        Self::ExpiredLeaf,
        Self::FutureLeaf,
        Self::ExpiredEndEntity,
        Self::ExpiredIntermediate,
        Self::ExpiredRoot,
        Self::AlteredSignature,
        Self::ForeignLeafSignature,
        Self::ForeignEndEntitySignature,
        Self::UnknownRoot,
        Self::MissingIntermediate,
        Self::AuthorityAsEndEntity,
        Self::AuthorityWithoutConstraints,
        Self::AuthorityWithoutCertSign,
        Self::UnknownCriticalInLeaf,
        Self::UnknownCriticalInEndEntity,
        Self::UnknownCriticalInAuthority,
        Self::ServerPurposeOfEndEntity,
        Self::ServerPurposeOfLeaf,
        Self::EndEntityWithoutSignatures,
        Self::ProxyWithoutSignatures,
        Self::NameOutsideConstraints,
        Self::WeakLeafKey,
        Self::Sha1OnEndEntity,
        Self::ProxyOfForeignSubject,
        Self::ProxyWithTwoNames,
        Self::ProxyWithUnit,
        Self::ProxyOfAuthority,
        Self::EndEntityOfProxy,
        Self::ProxyWithAlternativeName,
        Self::ProxyAsAuthority,
        Self::ProxyNotCritical,
        Self::ProxyIndependent,
        Self::ProxyUnknownLanguage,
        Self::ProxyMalformed,
        Self::ProxyDraft,
        Self::ProxyLegacy,
        Self::RevokedEndEntity,
        Self::RevokedIntermediate,
        Self::MissingList,
        Self::StaleList,
        Self::ForeignList,
        Self::ListOfOtherIssuer,
    ];

    pub(super) fn needs_proxy(self) -> bool {
        let is_of_proxy = format!("{self:?}").starts_with("Proxy");
        is_of_proxy || matches!(self, Self::ExpiredEndEntity | Self::EndEntityOfProxy)
    }

    pub(super) fn needs_intermediate(self) -> bool {
        matches!(self, Self::ExpiredIntermediate | Self::MissingIntermediate | Self::RevokedIntermediate)
    }

    pub(super) fn needs_lists(self) -> bool {
        use Defect::{
            ForeignList, ListOfOtherIssuer, MissingList, RevokedEndEntity, RevokedIntermediate, StaleList,
        };
        let of_lists =
            [RevokedEndEntity, RevokedIntermediate, MissingList, StaleList, ForeignList, ListOfOtherIssuer];
        of_lists.contains(&self)
    }
}

/// The shape of a chain.
#[derive(Clone, Debug)]
pub(super) struct ChainPlan {
    pub(super) defect: Defect,
    /// Path length of each authority, the root first.
    pub(super) authorities: Vec<Option<u32>>,
    /// Path length of each proxy, that of the end entity first.
    pub(super) proxies: Vec<Option<u32>>,
    /// Whether each proxy is limited.
    pub(super) limited: Vec<bool>,
    pub(super) has_key_usage: bool,
    pub(super) has_lists: bool,
    /// Whether the intermediate authorities are in the directory, instead of in the chain.
    pub(super) has_local_intermediates: bool,
    /// Whether the root and the end entity have keys of RSA.
    pub(super) has_rsa: bool,
}

impl ChainPlan {
    /// Returns a plan with a root, an intermediate authority, an end entity and two proxies.
    pub(super) fn usual(defect: Defect) -> Self {
        Self {
            defect,
            authorities: vec![None, None],
            proxies: vec![None, None],
            limited: vec![false, false],
            has_key_usage: true,
            has_lists: true,
            has_local_intermediates: false,
            has_rsa: false,
        }
    }
}

/// Keys that the chains of a test share, because making them takes time.
pub(super) struct TestKeys {
    authorities: Vec<TestKey>,
    end_entity: TestKey,
    proxies: Vec<TestKey>,
    rsa_root: TestKey,
    rsa_end_entity: TestKey,
    foreign: TestKey,
    weak: TestKey,
}

pub(super) const AUTHORITIES_MAX: usize = 4;
pub(super) const PROXIES_MAX: usize = 5;

impl TestKeys {
    pub(super) fn new() -> Self {
        let several = |count: usize| (0..count).map(|_| TestKey::p256()).collect();
        Self {
            authorities: several(AUTHORITIES_MAX),
            end_entity: TestKey::p256(),
            proxies: several(PROXIES_MAX),
            rsa_root: TestKey::rsa("ca_key_pem"),
            rsa_end_entity: TestKey::rsa("user_key_pem"),
            foreign: TestKey::p256(),
            weak: TestKey::weak(),
        }
    }

    fn authority(&self, plan: &ChainPlan, index: usize) -> &TestKey {
        if plan.has_rsa && index == 0 { &self.rsa_root } else { &self.authorities[index] }
    }

    fn end_entity(&self, plan: &ChainPlan) -> &TestKey {
        if plan.has_rsa { &self.rsa_end_entity } else { &self.end_entity }
    }
}

/// A chain as a peer sends it: the leaf first.
pub(super) type Chain = Vec<Vec<u8>>;

pub(super) fn authority_name(index: usize) -> Name {
    let common_name = if index == 0 { "Root".to_owned() } else { format!("Sub {index}") };
    name(&[("DC", "org"), ("O", "Grid Test"), ("CN", &common_name)])
}

pub(super) fn end_entity_name() -> Name {
    name(&[("DC", "org"), ("O", "Grid Test"), ("OU", "People"), ("CN", "Some User")])
}

/// The certificates of a plan before they are signed.
struct Drafts {
    authorities: Vec<DraftCertificate>,
    end_entity: DraftCertificate,
    proxies: Vec<DraftCertificate>,
}

impl Drafts {
    fn of(plan: &ChainPlan) -> Self {
        let authorities: Vec<DraftCertificate> = (0..plan.authorities.len())
            .map(|index| {
                let issuer = authority_name(index.saturating_sub(1));
                let serial = 100 + u64::try_from(index).unwrap();
                DraftCertificate::new(&authority_name(index), &issuer, serial)
                    .of_authority(plan.authorities[index])
            })
            .collect();
        let issuer = authority_name(plan.authorities.len() - 1);
        let mut end_entity = DraftCertificate::new(&end_entity_name(), &issuer, 200);
        if plan.has_key_usage {
            end_entity = end_entity.of_end_entity();
        }
        let (mut proxies, mut issuer) = (Vec::new(), end_entity_name());
        for (index, limit) in plan.proxies.iter().enumerate() {
            let serial = 300 + u64::try_from(index).unwrap();
            let mut subject = issuer.clone();
            subject.push(("CN", serial.to_string()));
            let mut proxy = DraftCertificate::new(&subject, &issuer, serial);
            let language = if plan.limited[index] { oid::LIMITED } else { oid::INHERIT_ALL };
            proxy.extensions.push(extension(oid::PROXY, true, &proxy_info(*limit, language)));
            if plan.has_key_usage {
                proxy.extensions.push(key_usage(DIGITAL_SIGNATURE));
            }
            proxies.push(proxy);
            issuer = subject;
        }
        Self { authorities, end_entity, proxies }
    }

    fn leaf(&mut self) -> &mut DraftCertificate {
        self.proxies.last_mut().unwrap_or(&mut self.end_entity)
    }

    fn last_authority(&mut self) -> &mut DraftCertificate {
        self.authorities.last_mut().unwrap()
    }

    fn set_key_usage(draft: &mut DraftCertificate, usage: u16) {
        let identifier = [6, 3, 0x55, 0x1d, 15];
        draft.extensions.retain(|one| !one.windows(5).any(|part| part == identifier));
        draft.extensions.push(key_usage(usage));
    }

    fn damage(&mut self, defect: Defect) {
        let expired = (NOW - 2 * DAY, NOW - DAY);
        let unknown = extension(oid::UNKNOWN, true, &[5, 0]);
        match defect {
            Defect::ExpiredLeaf => self.leaf().validity = expired,
            Defect::FutureLeaf => self.leaf().validity = (NOW + DAY, NOW + 2 * DAY),
            Defect::ExpiredEndEntity => self.end_entity.validity = expired,
            Defect::ExpiredIntermediate => self.last_authority().validity = expired,
            Defect::ExpiredRoot => self.authorities[0].validity = expired,
            Defect::AuthorityAsEndEntity => self.end_entity.extensions.push(basic_constraints(true, None)),
            Defect::AuthorityWithoutConstraints => drop(self.last_authority().extensions.remove(0)),
            Defect::AuthorityWithoutCertSign => Self::set_key_usage(self.last_authority(), CRL_SIGN),
            Defect::UnknownCriticalInLeaf => self.leaf().extensions.push(unknown),
            Defect::UnknownCriticalInEndEntity => self.end_entity.extensions.push(unknown),
            Defect::UnknownCriticalInAuthority => self.last_authority().extensions.push(unknown),
            Defect::ServerPurposeOfEndEntity => self.end_entity.extensions.push(server_auth_only()),
            Defect::ServerPurposeOfLeaf => self.leaf().extensions.push(server_auth_only()),
            Defect::EndEntityWithoutSignatures => Self::set_key_usage(&mut self.end_entity, KEY_ENCIPHERMENT),
            Defect::ProxyWithoutSignatures => Self::set_key_usage(self.leaf(), KEY_ENCIPHERMENT),
            Defect::NameOutsideConstraints => {
                self.last_authority().extensions.push(permitted_hosts("allowed.example"));
                self.end_entity.extensions.push(dns_name("other.example"));
            }
            Defect::Sha1OnEndEntity => self.end_entity.algorithm = Some(RSA_SHA1),
            _ => self.damage_proxy(defect),
        }
    }

    fn damage_proxy(&mut self, defect: Defect) {
        let value = |language| proxy_info(None, language);
        match defect {
            Defect::ProxyOfForeignSubject => self.leaf().subject[2].1 = "Other".to_owned(),
            Defect::ProxyWithTwoNames => self.leaf().subject.push(("CN", "9".to_owned())),
            Defect::ProxyWithUnit => self.leaf().subject.last_mut().unwrap().0 = "OU",
            Defect::EndEntityOfProxy => {
                self.leaf().subject = name(&[("DC", "org"), ("CN", "Another User")]);
                drop(self.leaf().extensions.remove(0));
            }
            Defect::ProxyWithAlternativeName => self.leaf().extensions.push(dns_name("host.example")),
            Defect::ProxyAsAuthority => self.leaf().extensions.push(basic_constraints(true, None)),
            Defect::ProxyNotCritical => {
                self.leaf().extensions[0] = extension(oid::PROXY, false, &value(oid::INHERIT_ALL));
            }
            Defect::ProxyIndependent => {
                self.leaf().extensions[0] = extension(oid::PROXY, true, &value(oid::INDEPENDENT));
            }
            Defect::ProxyUnknownLanguage => {
                self.leaf().extensions[0] = extension(oid::PROXY, true, &value(oid::UNKNOWN));
            }
            Defect::ProxyMalformed => {
                let value = [value(oid::INHERIT_ALL), vec![5, 0]].concat();
                self.leaf().extensions[0] = extension(oid::PROXY, true, &value);
            }
            Defect::ProxyDraft => {
                self.leaf().extensions[0] = extension(oid::PROXY_DRAFT, true, &value(oid::INHERIT_ALL));
            }
            Defect::ProxyLegacy => {
                drop(self.leaf().extensions.remove(0));
                self.leaf().subject.last_mut().unwrap().1 = "proxy".to_owned();
            }
            _ => {}
        }
    }
}

/// Writes the files of the authorities of a plan into a directory and returns the chain.
pub(super) fn build(plan: &ChainPlan, keys: &TestKeys, directory: &TestDirectory) -> Chain {
    let mut drafts = Drafts::of(plan);
    if plan.defect == Defect::ProxyOfAuthority {
        return proxy_of_authority(plan, keys, directory, drafts);
    }
    drafts.damage(plan.defect);
    let mut chain = signed_users(plan, keys, &drafts);
    chain.extend(put_authorities(plan, keys, directory, &drafts));
    chain
}

/// Signs the end entity and the proxies, and returns them with the leaf first.
fn signed_users(plan: &ChainPlan, keys: &TestKeys, drafts: &Drafts) -> Chain {
    let count = drafts.proxies.len();
    let leaf_key = |index: usize, key| {
        if plan.defect == Defect::WeakLeafKey && index == count { &keys.weak } else { key }
    };
    let mut signer = keys.authority(plan, plan.authorities.len() - 1);
    let mut chain = Vec::new();
    for (index, draft) in std::iter::once(&drafts.end_entity).chain(&drafts.proxies).enumerate() {
        let own = if index == 0 { keys.end_entity(plan) } else { &keys.proxies[index - 1] };
        let is_foreign = match plan.defect {
            Defect::ForeignLeafSignature => index == count,
            Defect::ForeignEndEntitySignature => index == 0,
            _ => false,
        };
        let by = if is_foreign { &keys.foreign } else { signer };
        chain.insert(0, draft.sign(leaf_key(index, own), by));
        signer = own;
    }
    if plan.defect == Defect::AlteredSignature {
        *chain[0].last_mut().unwrap() ^= 1;
    }
    chain
}

/// Writes authorities and revocation lists, and returns the authorities that the peer sends.
fn put_authorities(plan: &ChainPlan, keys: &TestKeys, directory: &TestDirectory, drafts: &Drafts) -> Chain {
    let (mut sent, count) = (Vec::new(), drafts.authorities.len());
    for (index, draft) in drafts.authorities.iter().enumerate() {
        let key = keys.authority(plan, index);
        let certificate = draft.sign(key, keys.authority(plan, index.saturating_sub(1)));
        let is_missing = match plan.defect {
            Defect::UnknownRoot => index == 0,
            Defect::MissingIntermediate => index + 1 == count,
            _ => false,
        };
        match index == 0 || plan.has_local_intermediates {
            _ if is_missing => {}
            true => directory.put_hashed(&draft.subject, "0", pem_of(&certificate)),
            false => sent.push(certificate),
        }
        if plan.has_lists {
            put_list(plan, keys, directory, index);
        }
    }
    // The directory has an authority, too, if that of the chain is missing or unusable.
    let other = name(&[("O", "Other Grid"), ("CN", "Other Root")]);
    let certificate = DraftCertificate::new(&other, &other, 1).of_authority(None);
    directory.put_hashed(&other, "0", pem_of(&certificate.sign(&keys.foreign, &keys.foreign)));
    sent
}

fn put_list(plan: &ChainPlan, keys: &TestKeys, directory: &TestDirectory, index: usize) {
    let is_last = index + 1 == plan.authorities.len();
    let (mut times, mut serials, mut key) =
        ((NOW - DAY, NOW + DAY), vec![7, 0x8000, 999], keys.authority(plan, index));
    let (subject, mut issuer) = (authority_name(index), authority_name(index));
    match plan.defect {
        Defect::MissingList if is_last => return,
        Defect::RevokedEndEntity if is_last => serials.push(200),
        Defect::RevokedIntermediate if index + 2 == plan.authorities.len() => {
            serials.push(101 + u64::try_from(index).unwrap());
        }
        Defect::StaleList if is_last => times = (NOW - 2 * DAY, NOW - DAY),
        Defect::ForeignList if is_last => key = &keys.foreign,
        Defect::ListOfOtherIssuer if is_last => issuer[2].1 = "Another".to_owned(),
        _ => {}
    }
    let list = revocation_list(&issuer, times, &serials, key);
    directory.put_hashed(&subject, "r0", pem("X509 CRL", &list));
}

/// Builds a chain whose proxy is issued by the last authority.
fn proxy_of_authority(plan: &ChainPlan, keys: &TestKeys, directory: &TestDirectory, drafts: Drafts) -> Chain {
    let index = plan.authorities.len() - 1;
    let issuer = authority_name(index);
    let mut subject = issuer.clone();
    subject.push(("CN", "400".to_owned()));
    let mut proxy = DraftCertificate::new(&subject, &issuer, 400);
    proxy.extensions.push(extension(oid::PROXY, true, &proxy_info(None, oid::INHERIT_ALL)));
    let signer = keys.authority(plan, index);
    let mut chain = vec![proxy.sign(&keys.proxies[0], signer)];
    chain.push(drafts.authorities[index].sign(signer, keys.authority(plan, index.saturating_sub(1))));
    chain.extend(put_authorities(plan, keys, directory, &drafts));
    chain
}
