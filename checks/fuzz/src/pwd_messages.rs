//! Fuzz target for the messages of `pwd` and its files: as messages of a client, as the answers of a
//! server, and as a file of passwords.
//!
//! Decoding must not panic, decoded files survive encoding, and nobody is authenticated without a
//! password.

use auth::pwd::{PWD, PwdClient, PwdClientSettings, PwdFile, PwdServer, PwdServerSettings};
use auth::{
    ClientContext, ClientProtocol, LoginPeer, OfferedProtocol, ServerProtocol, ServerStep, SystemRng,
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn server() -> &'static PwdServer {
    static SERVER: OnceLock<PwdServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let settings = PwdServerSettings { file: "/nonexistent".into(), failures_max: u32::MAX };
        let file = PwdFile::of_new_server("lab", &mut SystemRng, 0).unwrap_or_default();
        PwdServer::with_file(settings, file).unwrap_or_else(|error| panic!("{error}"))
    })
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_187_117)
}

/// Checks `data` in each role.
pub fn target(data: &[u8]) {
    if let Ok(file) = PwdFile::decode(data) {
        let again = PwdFile::decode(&file.encode(0)).map(|again| again.entries().len());
        assert_eq!(again, Ok(file.entries().len()));
    }
    let address = ([192, 0, 2, 1], 4711).into();
    let peer =
        LoginPeer { address, host: "c.example.org".to_owned(), login_id: "me".to_owned(), is_tls: false };
    let mut exchange = server().begin(&peer);
    assert!(!matches!(exchange.step(data, now()), ServerStep::Done(_)));
    let settings = PwdClientSettings { user: Some("alice".to_owned()), ..PwdClientSettings::default() };
    let client = PwdClient::new(settings, Arc::new(|_| None));
    let context = ClientContext::new(address, "c.example.org", "s.example.org");
    for parameters in [data, b"v:10100,id:lab,c:ssl"] {
        let offer = OfferedProtocol { id: PWD.to_owned(), parameters: parameters.to_vec() };
        if let Ok(mut login) = client.begin(&offer, &context) {
            let _ = login.step(None, now()).and_then(|_| login.step(Some(data), now()));
        }
    }
}
