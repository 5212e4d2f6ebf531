//! Fuzz target for macaroons: as text, as credentials of `ztn`, as caveats that a holder appends, and as
//! the file of a secret.
//!
//! Decoding must not panic, nothing is accepted without the secret, and no caveat widens a macaroon.

use auth::access::{AccessOperation, AuthdbCheck, CredentialLayer};
use auth::macaroons::{
    Activity, MacaroonPolicy, MacaroonRequest, MacaroonSecret, MacaroonSettings, MacaroonVerdict,
    VerifiedMacaroon, is_macaroon_text, with_caveat,
};
use auth::tokens::OnMissing;
use auth::ztn::{ZtnServer, ZtnServerSettings};
use auth::{LoginPeer, ServerProtocol, ServerStep, SystemRng};
use base::LogicalPath;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Paths about which is decided.
const PATHS: [&[u8]; 6] = [b"/", b"/data", b"/data/sub", b"/data/sub/f", b"/data/subx", b"/other/f"];

fn secret() -> MacaroonSecret {
    MacaroonSecret::new(b"a secret that is not that of the computed cases")
}

fn policy() -> &'static Arc<MacaroonPolicy> {
    static POLICY: OnceLock<Arc<MacaroonPolicy>> = OnceLock::new();
    POLICY.get_or_init(|| {
        let settings = MacaroonSettings {
            secret: "f".into(),
            check: AuthdbCheck::None,
            site: "Test-Site".to_owned(),
            lifetime_max: Some(Duration::from_secs(86_400)),
            on_missing: OnMissing::PassThrough,
        };
        Arc::new(MacaroonPolicy::new(settings, secret()))
    })
}

/// The time of the computed cases.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_258_800)
}

fn path(text: &[u8]) -> LogicalPath {
    LogicalPath::parse(text).unwrap_or_else(|_| LogicalPath::root())
}

/// Returns a valid macaroon.
fn issued() -> &'static str {
    static ISSUED: OnceLock<String> = OnceLock::new();
    ISSUED.get_or_init(|| {
        let request = MacaroonRequest {
            name: Some("alice".to_owned()),
            activities: vec![Activity::Download, Activity::Manage],
            path: path(b"/data"),
            expires: now() + Duration::from_secs(3600),
        };
        request.issue(&secret(), "Test-Site", &mut SystemRng).unwrap_or_else(|error| panic!("{error}"))
    })
}

fn valid(text: &[u8]) -> Option<Arc<VerifiedMacaroon>> {
    match policy().verify(text, now()) {
        MacaroonVerdict::Valid(macaroon) => Some(macaroon),
        _ => None,
    }
}

/// Checks `data` as a macaroon, as credentials, as a secret, and its lines as caveats.
pub fn target(data: &[u8]) {
    assert!(valid(data).is_none(), "a macaroon without the secret was accepted");
    if !matches!(policy().verify(data, now()), MacaroonVerdict::NotRecognized(_)) {
        assert!(is_macaroon_text(data));
    }
    let peer = LoginPeer {
        address: ([192, 0, 2, 1], 4711).into(),
        host: "client.example.org".to_owned(),
        login_id: "me".to_owned(),
        is_tls: true,
    };
    let layer = CredentialLayer::Macaroons(policy().clone());
    let server = ZtnServer::new(ZtnServerSettings::default(), Some(layer));
    assert!(!matches!(server.begin(&peer).step(data, now()), ServerStep::Done(_)));
    let _ = MacaroonSecret::parse(data);
    narrow(data);
}

/// Appends the lines of `data` as caveats, which must never allow more than before.
fn narrow(data: &[u8]) {
    let mut text = issued().to_owned();
    let mut before = valid(text.as_bytes());
    assert!(before.is_some(), "an issued macaroon was refused");
    for caveat in data.split(|byte| *byte == b'\n') {
        let Some(longer) = with_caveat(text.as_bytes(), caveat) else { return };
        let after = valid(longer.as_bytes());
        if let Some(after) = &after {
            let Some(before) = &before else { panic!("a caveat made a refused macaroon valid") };
            assert!(after.expires() <= before.expires());
            for operation in AccessOperation::ALL {
                let widened = |at: &&[u8]| {
                    let at = path(at);
                    after.allows(operation, &at) && !before.allows(operation, &at)
                };
                assert!(!PATHS.iter().any(widened), "{operation:?}");
            }
        }
        (text, before) = (longer, after);
    }
}
