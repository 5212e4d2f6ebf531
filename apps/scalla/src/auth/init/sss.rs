//! The files of a server whose clients log in with keys (`sss`).

use super::{InitFile, InitPlan, RULES, SETTINGS, rules_text};
use auth::sss::{Keytab, SssKey};
use auth::{Secret, SystemRng};
use base::Rng;
use jiff::Timestamp;
use serde_json::json;
use std::path::Path;

/// Name of the keys, by which clients and servers agree on one.
const KEY_NAME: &str = "scalla";
/// Length of a key in bytes.
const KEY_BYTES: usize = 32;
/// Group of the administrator's key.
const GROUP: &str = "nogroup";
const KEYTAB: &str = "sss.keytab";

/// Returns the key table with a key of the administrator, the rules, and the configuration.
pub(super) fn plan(directory: &Path, admin: &str) -> InitPlan {
    let [keytab, rules, settings] = [KEYTAB, RULES, SETTINGS].map(|name| directory.join(name));
    let text = settings_text(&keytab, &rules);
    let shown = [&keytab, &rules, &settings].map(|path| path.display().to_string());
    let [shown_keytab, shown_rules, shown_settings] = &shown;
    let report = format!(
        "Made:\n  {shown_keytab}  the key of {admin}; keep it secret\n  \
         {shown_rules}  rules: {admin} may do everything, others nothing\n  \
         {shown_settings}  configuration that uses both\n\n\
         Start a server with it, or copy its lines into the configuration of yours:\n    \
         scalla serve DIR --config {shown_settings}\n\n\
         As a client, {admin} needs a copy of the key, with mode 0600:\n    \
         XrdSecSSSKT=COPY scalla auth whoami HOST\n\n\
         A key for another user, and what to copy to that user:\n    \
         xrdsssadmin -k {KEY_NAME} -u NAME -g GROUP add {shown_keytab}\n    \
         xrdsssadmin -u NAME install NAME.keytab < {shown_keytab}\n"
    );
    let json = json!({
        "admin": admin, "keytab": shown_keytab, "authdb": shown_rules, "configuration": shown_settings,
    });
    let files = vec![
        InitFile::secret(keytab, Keytab { keys: vec![new_key(admin)] }.encode()),
        InitFile::public(rules, rules_text(admin)),
        InitFile::public(settings.clone(), text),
    ];
    InitPlan { files, settings, report, json }
}

fn new_key(admin: &str) -> SssKey {
    let mut bytes = vec![0; KEY_BYTES];
    SystemRng.fill(&mut bytes);
    let mut key = SssKey {
        id: 0,
        name: KEY_NAME.to_owned(),
        user: admin.to_owned(),
        group: GROUP.to_owned(),
        created: u64::try_from(Timestamp::now().as_second()).unwrap_or(0),
        expires: 0,
        secret: Secret::new(bytes),
    };
    key.set_number(1);
    key
}

fn settings_text(keytab: &Path, rules: &Path) -> String {
    format!(
        "# Made by scalla auth init.\n\
         xrootd.seclib default\n\
         sec.protocol sss -s {}\n\
         ofs.authorize\n\
         acc.authdb {}\n",
        keytab.display(),
        rules.display(),
    )
}
