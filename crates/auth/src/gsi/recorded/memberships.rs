//! Memberships in virtual organizations as parts of an identity.

use super::*;
use crate::grid::{Fqan, VomsMap};

#[test]
fn memberships_become_groups_and_names() {
    let end = now() + Duration::from_secs(30);
    let member = |names: &[&str]| VomsMembership {
        organization: "cms".to_owned(),
        names: names.iter().map(|name| Fqan::parse(name).unwrap()).collect(),
        expires: end,
    };
    let login = |use_of: Option<AttributeUse>, mapping: NameMapping, users: &[&str], members: &[&str]| {
        let memberships = if members.is_empty() { Vec::new() } else { vec![member(members)] };
        let trust = RecordedTrust { memberships, ..RecordedTrust::default() };
        let change = |settings: &mut GsiServerSettings| {
            settings.mapping = mapping;
            settings.attributes = use_of;
        };
        exchange(&server_of(change, users, trust), &client_with(&[]), |_, message| message)
    };
    let attributes = AttributeUse::default();
    let found =
        login(Some(attributes.clone()), NameMapping::Try, &[], &["/cms/Role=prod", "/cms/a"]).unwrap();
    assert_eq!(found.vorg.as_deref(), Some("cms cms"));
    assert_eq!(found.groups.as_deref(), Some("/cms /cms/a"));
    assert_eq!(found.role.as_deref(), Some("prod NULL"));
    assert_eq!(found.endorsements.as_deref(), Some("/cms/Role=prod,/cms/a"));
    assert_eq!((found.extractor.as_deref(), found.expires), (Some("xrdvoms"), Some(end)));
    assert_eq!(found.name.as_deref(), Some("0a1b2c3d.0"));
    // They are ignored unless configured, and do not replace the grid map.
    let found = login(None, NameMapping::Try, &[], &["/cms"]).unwrap();
    assert!(found.groups.is_none() && found.expires > Some(end));
    assert!(login(Some(attributes.clone()), NameMapping::Required, &[], &["/cms"]).is_err());
    // S084.
    let required = AttributeUse { is_required: true, ..attributes };
    let refused = login(Some(required.clone()), NameMapping::Try, &["alice"], &[]).unwrap_err();
    assert!(refused.contains("no attributes of VOMS that count"), "{refused}");
    assert!(login(Some(required), NameMapping::Try, &["alice"], &["/cms"]).is_ok());
}

#[test]
fn users_of_groups_count_after_the_grid_map() {
    let path = std::env::temp_dir().join(format!("auth-voms-map-{}", std::process::id()));
    std::fs::write(&path, "\"/cms/*\" cmsuser\n\"/atlas/*\" x/y\n").unwrap();
    let user = |users: &[&str], group: &str| {
        let memberships = vec![VomsMembership {
            organization: "cms".to_owned(),
            names: vec![Fqan::parse(group).unwrap()],
            expires: now() + Duration::from_secs(30),
        }];
        let trust = RecordedTrust { memberships, ..RecordedTrust::default() };
        let keys = load("gsi.json")["keys"].clone();
        let mut settings = GsiServerSettings::new("/nonexistent".into(), "/nonexistent".into());
        settings.attributes = Some(AttributeUse::default());
        let users = Names(users.iter().map(|name| (*name).to_owned()).collect());
        let maps = NameMaps {
            subjects: Some(Arc::new(users)),
            groups: Some(Arc::new(VomsMap::open(&path).unwrap())),
            accounts: None,
        };
        let (certificate, key) = (text(&keys, "host_cert_pem"), text(&keys, "host_key_pem"));
        let server = GsiServer::with_certificate(
            settings,
            certificate,
            key,
            Arc::new(trust),
            maps,
            Box::new(SystemRng),
        )
        .unwrap();
        let entity = exchange(&server, &client_with(&[]), |_, message| message).unwrap();
        (entity.name.as_deref().unwrap().to_owned(), entity.attribute("gridmap.name").is_some())
    };
    assert_eq!(user(&["alice"], "/cms"), ("alice".to_owned(), true));
    assert_eq!(user(&[], "/cms"), ("cmsuser".to_owned(), false));
    assert_eq!(user(&[], "/lhcb"), ("0a1b2c3d.0".to_owned(), false));
    // A user that cannot be one is left out.
    assert_eq!(user(&[], "/atlas"), ("0a1b2c3d.0".to_owned(), false));
    std::fs::remove_file(path).unwrap();
}

/// Authorities and their lists can be megabytes, so the short interval of the map must not apply to them.
#[test]
fn a_map_of_groups_has_an_interval_of_its_own() {
    let path = std::env::temp_dir().join(format!("auth-voms-interval-{}", std::process::id()));
    std::fs::write(&path, "\"/cms/*\" before\n").unwrap();
    let map = Arc::new(VomsMap::open(&path).unwrap());
    let trust = RecordedTrust::default();
    let authority_reads = trust.refreshes.clone();
    let mut settings = GsiServerSettings::new("/nonexistent".into(), "/nonexistent".into());
    settings.refresh = Duration::from_secs(600);
    let keys = load("gsi.json")["keys"].clone();
    let (certificate, key) = (text(&keys, "host_cert_pem"), text(&keys, "host_key_pem"));
    let maps = NameMaps { subjects: None, groups: Some(map.clone()), accounts: None };
    let rng = Box::new(SystemRng);
    let server = GsiServer::with_certificate(settings, certificate, key, Arc::new(trust), maps, rng).unwrap();
    std::fs::write(&path, "\"/cms/*\" after\n").unwrap();
    let user = || map.user_for(&[Fqan::parse("/cms").unwrap()]);
    let (short, long): (Vec<_>, Vec<_>) =
        server.periodic_refreshes().into_iter().partition(|files| files.interval < Duration::from_secs(600));
    assert_eq!((short.len(), long.len()), (1, 1));
    long[0].read().unwrap_err();
    assert_eq!((user().as_deref(), authority_reads.load(Ordering::Relaxed)), (Some("before"), 1));
    short[0].read().unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!((user().as_deref(), authority_reads.load(Ordering::Relaxed)), (Some("after"), 1));
}
