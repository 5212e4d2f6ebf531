//! Copies with credentials that their clients have delegated.

use super::*;
use logical::DelegatedCredentials;

#[test]
fn copies_without_delegated_credentials_are_refused_where_they_are_required() {
    let pulled = |credentials, cgi: &str| {
        let (server, hand) = serving(Settings { credentials, ..Settings::default() });
        let file = match server.open_as(&client(), &format!("/data/new{PULL}{cgi}"), creating()).answer() {
            Answer::Value(Value::Opened(opened)) => opened.file,
            Answer::Error(error) => return Err((error.kind, error.text)),
            other => panic!("{}", tell(&other)),
        };
        server.on_file(&file, FileOperation::Sync).done();
        let result = server.on_file(&file, FileOperation::Sync);
        assert!(is_later(&result));
        let fetch = hand.take().fetch.clone();
        Ok((fetch.source, fetch.key.is_some(), fetch.credentials.is_some()))
    };
    let refused = Err((NotAuthorized, "Unable to open /data/new; no delegated credentials for tpc".into()));
    let by_grant = Ok(("source:1095".to_owned(), true, false));
    let relies = "&tpc.dlgon=1&tpc.dlg=manager:1094";
    assert_eq!(pulled(DelegatedCredentials::Required, ""), refused);
    assert_eq!(pulled(DelegatedCredentials::Required, relies), refused);
    assert_eq!(pulled(DelegatedCredentials::Optional, ""), by_grant);
    // Without a grant and without credentials, the copy could only fail later.
    assert_eq!(pulled(DelegatedCredentials::Optional, relies), refused);
    // Here the client learns that this server uses none, and registers a grant.
    assert_eq!(pulled(DelegatedCredentials::Unused, relies), by_grant);
}
