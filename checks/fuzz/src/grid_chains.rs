//! Fuzz target for grid certificates: chains as PEM and as DER, revocation lists, names, grid maps and
//! policies of authorities.
//!
//! Decoding must not panic, and no chain is accepted except for the recorded ones.

use auth::grid::{
    ChainRole, CrlLevel, DistinguishedName, Fqan, GridMap, GridTrust, GridTrustSettings, Namespaces,
    RevocationList, SigningPolicy, certificates_of_pem, unverified_groups,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of the names of recorded certificates.
const RECORDED: &str = "/DC=test/O=Throwaway";

/// Returns the authority that issued the recorded certificates.
fn trust() -> &'static GridTrust {
    static TRUST: OnceLock<GridTrust> = OnceLock::new();
    TRUST.get_or_init(|| recorded_trust().unwrap_or_else(|error| panic!("{error:#}")))
}

fn recorded_trust() -> anyhow::Result<GridTrust> {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/gsi.json");
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(recorded)?)?;
    let directory = std::env::temp_dir().join(format!("fuzz-grid-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755))?;
    for (file, key) in [("5cdab576.0", "ca_cert_pem"), ("5cdab576.r0", "crl_pem")] {
        let path = directory.join(file);
        std::fs::write(&path, recorded["keys"][key].as_str().unwrap_or_default())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
    }
    let settings = GridTrustSettings {
        directories: vec![directory.clone()],
        crl_level: CrlLevel::Use,
        ..GridTrustSettings::default()
    };
    let trust = GridTrust::open(settings);
    std::fs::remove_dir_all(directory)?;
    Ok(trust?)
}

/// A time within the validity of the recorded certificates.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_190_400)
}

fn verify(chain: &[Vec<u8>]) {
    for role in [ChainRole::Client, ChainRole::Server] {
        if let Ok(verified) = trust().verify(chain, role, now()) {
            let name = verified.end_entity();
            assert!(name.starts_with(RECORDED) && !name.ends_with("Rev Oked"), "{name}");
            assert!(verified.leaf().starts_with(verified.end_entity()) && verified.valid_until() >= now());
        }
    }
    for group in chain.iter().flat_map(|certificate| unverified_groups(certificate)) {
        assert_eq!(Fqan::parse(group.as_str()).as_ref(), Some(&group));
        assert!(group.group().starts_with(&format!("/{}", group.organization())) && !group.role().is_empty());
    }
    if let Some(first) = chain.first() {
        let _ = trust().authority_hashes(first);
    }
}

/// Checks `data` as PEM, as certificates after their lengths, and as each kind of file.
pub fn target(data: &[u8]) {
    if let Ok(chain) = certificates_of_pem(data) {
        verify(&chain);
    }
    verify(&pieces(data));
    if let Ok(list) = RevocationList::parse(data) {
        let _ = (list.is_current(now()), list.has(data.get(..4).unwrap_or_default()));
        assert!(list.issuer().hash().len() == 8);
    }
    if let Some(name) = DistinguishedName::parse(data) {
        assert!(name == name.clone() && name.old_hash().len() == 8);
        assert!(name.text().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", name.text());
    }
    let (subject, issuer) = ("/DC=org/CN=user", "/DC=org/CN=authority");
    if let Ok(map) = GridMap::parse(data) {
        let users = map.names_for(subject);
        assert_eq!(map.user_for(subject, None).as_ref(), users.first());
    }
    let _ = SigningPolicy::parse(data).map(|policy| policy.allows(issuer, subject));
    let _ = Namespaces::parse(data).map(|namespaces| namespaces.allows(issuer, subject));
}

/// Splits certificates, each after its length in two bytes.
fn pieces(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, behind) = rest.split_at(length);
        found.push(piece.to_vec());
        data = behind;
    }
    found
}

/// Returns certificates after their lengths, for seeds.
pub(crate) fn joined(chain: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |piece: &Vec<u8>| {
        let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes(), piece.as_slice()].concat()
    };
    chain.iter().flat_map(with_length).collect()
}
