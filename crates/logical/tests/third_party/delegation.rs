//! Copies with credentials that their clients have delegated.

use super::*;
use logical::DelegatedCredentials;

#[test]
fn copies_without_delegated_credentials_are_refused_where_they_are_required() {
    let pulled = |credentials, cgi: &str| opened(credentials, &format!("{PULL}{cgi}"));
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

#[test]
fn a_copy_without_a_key_and_without_credentials_is_refused() {
    let keyless = "?tpc.lfn=/theirs/f&tpc.src=source:1095&tpc.dlgon=1";
    let no_key = || Err((ArgInvalid, "Unable to open /data/new; tpc key not specified".to_owned()));
    for key in ["", "&tpc.key="] {
        let cgi = format!("{keyless}{key}");
        assert_eq!(opened(DelegatedCredentials::Unused, &cgi), no_key());
        let optional = opened(DelegatedCredentials::Optional, &cgi).unwrap_err();
        assert_eq!(optional.0, NotAuthorized, "{}", optional.1);
    }
}

/// The source of the transfer, whether it has a key, and whether it has credentials.
type Opened = (String, bool, bool);

/// Opens the destination of a copy with this cgi, and starts the copy.
fn opened(credentials: DelegatedCredentials, cgi: &str) -> Result<Opened, (ErrorKind, String)> {
    let (server, hand) = serving(Settings { credentials, ..Settings::default() });
    let file = match server.open_as(&client(), &format!("/data/new{cgi}"), creating()).answer() {
        Answer::Value(Value::Opened(opened)) => opened.file,
        Answer::Error(error) => return Err((error.kind, error.text)),
        other => panic!("{}", tell(&other)),
    };
    server.on_file(&file, FileOperation::Sync).done();
    let result = server.on_file(&file, FileOperation::Sync);
    assert!(is_later(&result));
    let fetch = hand.take().fetch.clone();
    Ok((fetch.source, fetch.key.is_some(), fetch.credentials.is_some()))
}
