//! The program `xrdsssadmin`: adds, deletes, installs and lists keys of the protocol `sss`.

mod command_line;

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use auth::SystemRng;
use auth::sss::{HOME_KEYTAB, KEYTAB_BYTES_MAX, Keytab, KeytabError, SssKey};
use base::Rng;
use jiff::Timestamp;

use self::command_line::{KeytabAction, KeytabRequest, OPEN_STATUS, SortKey, USAGE_STATUS};
use crate::file_owner::become_owner;
use crate::local_time::local_time;
use crate::printer::{err, out};
use crate::{environment, xrootd_compat};

/// Exit status after a declined deletion.
const DECLINED_STATUS: u8 = 2;
/// Exit status if the table cannot be written.
const WRITE_STATUS: u8 = 8;

const PROGRAM: &str = "xrdsssadmin";
const USAGE: &str = "
Usage:   xrdsssadmin [options] action

Options: [-d] [-g grpname] [-h hold] [-k keyname] [-l keylen] [-n keynum]
         [-s {c|g|k|n|u|x}] [-u usrname] [-x {days | mm/dd/yy}]

Actions: {add | del | install | list} [keyfn]
";

/// The end of the program: exit status and message, if there is one.
type Failure = (u8, Option<String>);

fn fail(status: u8, message: impl Into<String>) -> Failure {
    (status, Some(message.into()))
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let now = Timestamp::now();
    let request = match command_line::parse(&xrootd_compat::words(arguments), now) {
        Ok(request) => request,
        Err((status, text)) => {
            err().line(format_args!("{PROGRAM}: {text}"));
            if status == USAGE_STATUS {
                err().literal(USAGE);
            }
            return ExitCode::from(status);
        }
    };
    match perform(&request, u64::try_from(now.as_second()).unwrap_or(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, message)) => {
            if let Some(message) = message {
                err().line(format_args!("{PROGRAM}: {message}"));
            }
            ExitCode::from(status)
        }
    }
}

fn perform(request: &KeytabRequest, now: u64) -> Result<(), Failure> {
    let path = match &request.path {
        Some(path) => path.clone(),
        None => {
            let home = environment::home();
            home.ok_or_else(|| fail(OPEN_STATUS, "HOME is not set; name the key file"))?.join(HOME_KEYTAB)
        }
    };
    become_owner(&path).map_err(|error| fail(OPEN_STATUS, error))?;
    match request.action {
        KeytabAction::Add => add(request, &path, now),
        KeytabAction::Delete => delete(request, &path, now),
        KeytabAction::Install => install(request, &path, now),
        KeytabAction::List => list(request, &path),
    }
}

fn add(request: &KeytabRequest, path: &Path, now: u64) -> Result<(), Failure> {
    if !path.exists() {
        let question = format!("Keyfile '{}' does not exist. Create it? (y | n): ", path.display());
        if !confirm(&question, true) {
            return Err((OPEN_STATUS, None));
        }
    }
    let mut bytes = vec![0; request.key_bytes];
    SystemRng.fill(&mut bytes);
    let secret = auth::Secret::new(bytes);
    let (kept, total, expired) = update(path, "add key to", |table| {
        let mut keytab = match table {
            Err(KeytabError::Absent { .. }) => Keytab::default(),
            table => table.map_err(|error| fail(OPEN_STATUS, error.to_string()))?,
        };
        let selector = &request.selector;
        let text =
            |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.to_owned());
        let mut key = SssKey {
            id: 0,
            name: text(&selector.name, "nowhere"),
            user: text(&selector.user, "nobody"),
            group: text(&selector.group, "nogroup"),
            created: now,
            expires: request.expires,
            secret,
        };
        let is_used = |number: &u32| keytab.keys.iter().any(|key| key.number() == *number);
        let number = selector.number.filter(|number| !is_used(number));
        key.set_number(number.unwrap_or_else(|| keytab.next_number()));
        let total = keytab.keys.len() + 1;
        keytab.insert(key, request.hold);
        let expired = keytab.remove_expired(now);
        let kept = keytab.keys.len();
        Ok((keytab, (kept, total, expired)))
    })?;
    report(kept, total, "kept", expired);
    Ok(())
}

fn delete(request: &KeytabRequest, path: &Path, now: u64) -> Result<(), Failure> {
    // A change would create directories and a lock also for a file that does not exist.
    open(path)?;
    // The question is asked without the lock, and then the table is read again.
    let mut is_confirmed = false;
    loop {
        let deleted = update(path, "delete keys from", |table| {
            let mut keytab = table.map_err(|error| open_failure(path, &error))?;
            let total = keytab.keys.len();
            keytab.keys.retain(|key| !request.selector.selects(key));
            if keytab.keys.len() == total {
                return Err(fail(OPEN_STATUS, "No matching key(s) found.").into());
            }
            let expired = keytab.remove_expired(now);
            let kept = keytab.keys.len();
            if kept == 0 && !is_confirmed {
                return Err(DeletionStop::NeedsConfirmation);
            }
            Ok((keytab, (kept, total, expired)))
        });
        match deleted {
            Ok((0, ..)) => return Ok(()),
            Ok((kept, total, expired)) => {
                report(kept, total, "kept", expired);
                return Ok(());
            }
            Err(DeletionStop::NeedsConfirmation) => {
                let question = format!("No keys will remain in {}. Delete file? (n | y): ", path.display());
                if !confirm(&question, false) {
                    return Err(fail(DECLINED_STATUS, "No keys deleted!"));
                }
                is_confirmed = true;
            }
            Err(DeletionStop::Failed(failure)) => return Err(failure),
        }
    }
}

/// The reason why a deletion changed nothing.
enum DeletionStop {
    /// No keys would remain, and the user has not confirmed that yet.
    NeedsConfirmation,
    Failed(Failure),
}

impl From<Failure> for DeletionStop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn install(request: &KeytabRequest, path: &Path, now: u64) -> Result<(), Failure> {
    let mut text = zeroize::Zeroizing::new(Vec::new());
    std::io::stdin().take(KEYTAB_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| {
        fail(OPEN_STATUS, format!("Unable to read keys; {}", xrootd_compat::format::system(&error)))
    })?;
    if text.len() as u64 > KEYTAB_BYTES_MAX {
        return Err(fail(OPEN_STATUS, format!("The keys have more than {KEYTAB_BYTES_MAX} bytes")));
    }
    let mut keytab = Keytab::parse(&text).map_err(|error| fail(OPEN_STATUS, error.to_string()))?;
    let total = keytab.keys.len();
    keytab.keys.retain(|key| request.selector.selects(key));
    let expired = keytab.remove_expired(now);
    if keytab.keys.is_empty() {
        let named = request.selector.name.as_ref().map(|name| format!(" named {name}"));
        let text = format!("No keys{} found to install.", named.unwrap_or_default());
        return Err(fail(WRITE_STATUS, text));
    }
    let kept = keytab.keys.len();
    update(path, "install keys to", |_| Ok::<_, Failure>((keytab, ())))?;
    report(kept, total, "installed", expired);
    Ok(())
}

fn list(request: &KeytabRequest, path: &Path) -> Result<(), Failure> {
    let mut keys = open(path)?.keys;
    keys.retain(|key| request.selector.selects(key));
    if keys.is_empty() {
        let subject = request.selector.name.as_ref().map(|name| format!("{name} key not"));
        let subject = subject.unwrap_or_else(|| "No keys".to_owned());
        err().line(format_args!("{PROGRAM}: {subject} found in {}", path.display()));
        return Ok(());
    }
    match request.sort {
        SortKey::Created => keys.sort_by_key(|key| key.created),
        SortKey::Group => keys.sort_by(|a, b| a.group.cmp(&b.group)),
        SortKey::KeyName => keys.sort_by(|a, b| a.name.cmp(&b.name)),
        SortKey::Number => keys.sort_by_key(SssKey::number),
        SortKey::User => keys.sort_by(|a, b| a.user.cmp(&b.user)),
        SortKey::Expiry => keys.sort_by_key(|key| key.expires),
    }
    out().literal("     Number Len Date/Time Created Expires  Keyname User & Group\n");
    out().literal("     ------ --- --------- ------- -------- -------\n");
    for key in &keys {
        let expires = if key.expires == 0 { "--------".to_owned() } else { date(key.expires, "%m/%d/%y") };
        let (number, bytes, created) = (key.number(), key.secret.expose().len(), key.created);
        let created = date(created, "%m/%d/%y %H:%M:%S");
        let (name, user, group) = key.triple();
        out().line(format_args!("{number:11} {bytes:3} {created} {expires} {name} {user} {group}"));
    }
    Ok(())
}

/// Returns a time in the local time zone.
fn date(seconds: u64, format: &str) -> String {
    let shown = i64::try_from(seconds).ok().and_then(|seconds| local_time(seconds, format));
    shown.unwrap_or_else(|| "--------".to_owned())
}

fn open(path: &Path) -> Result<Keytab, Failure> {
    Keytab::open_as_editor(path).map_err(|error| open_failure(path, &error))
}

fn open_failure(path: &Path, error: &KeytabError) -> Failure {
    match error {
        KeytabError::Absent { .. } => {
            fail(OPEN_STATUS, format!("Keyfile '{}' does not exist.", path.display()))
        }
        error => fail(OPEN_STATUS, error.to_string()),
    }
}

/// Changes a table. `action` is the one that fails in the message of an error of the file system.
fn update<T, E: From<Failure>>(
    path: &Path,
    action: &str,
    change: impl FnOnce(Result<Keytab, KeytabError>) -> Result<(Keytab, T), E>,
) -> Result<T, E> {
    Keytab::update(path, &mut SystemRng, change).map_err(|error| {
        let why = xrootd_compat::format::system(&error);
        fail(WRITE_STATUS, format!("Unable to {action} '{}'; {why}", path.display()))
    })?
}

fn report(kept: usize, total: usize, done: &str, expired: usize) {
    let keys = if kept == 1 { "key" } else { "keys" };
    err().line(format_args!("{PROGRAM}: {kept} {keys} out of {total} {done} ({expired} expired)."));
}

/// Asks a question. An empty line and the end of the input are the default.
fn confirm(question: &str, default: bool) -> bool {
    err().prompt(format_args!("{PROGRAM}: {question}"));
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(_) => match line.trim().as_bytes().first() {
            None => default,
            Some(b'y' | b'Y') => true,
            Some(_) => false,
        },
        Err(_) => false,
    }
}
