//! The program `xrdpwdadmin`: the file of passwords of a server.
//!
//! Source: security facts, section 7.

use crate::file_owner::become_owner;
use crate::local_time::local_time;
use crate::printer::{err, out};
use crate::{environment, xrootd_compat};
use auth::pwd::{
    ADMIN_FILE, EntryStatus, MODULE_SUFFIX, PASSWORD_BYTES_MAX, PwdEntry, PwdFile, SERVER_ID,
    SERVER_ID_BYTES_MAX, ServerKey, StoredPassword, ask_password, is_server_id, is_user_name, unix_seconds,
};
use auth::{Secret, SystemRng};
use base::Rng;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

const PROGRAM: &str = "xrdpwdadmin";

const USAGE: &str = "
Usage: xrdpwdadmin [-h] [-m admin] [action] [options]

  add <user>          add a user with a password that is typed at the terminal
  update <user>       replace the password of a user
  read <user>         show the entry of a user
  remove <user>       remove a user
  disable <user>      refuse the logins of a user
  copy <user> <new>   add a user with the password of another one
  trim                remove unused space
  browse              list the file (default)

Options: -f <file | dir>     file of passwords [~/.xrd/pwdadmin]
         -dontask            ask no questions
         -force              replace a user that exists
         -[no]change         the user must [not] choose a password at the first login
         -[no]random         make a password and show it
         -srvID <text>       name of the server
         -changepuk          make a new key of the server
";

/// Length of random passwords.
const RANDOM_LETTERS: usize = 12;

/// The letters of random passwords and names, without those that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// A parsed command line.
#[derive(Default, PartialEq, Eq, Debug)]
struct PwdAdminRequest {
    wants_help: bool,
    action: Option<PwdAction>,
    file: Option<PathBuf>,
    asks_nothing: bool,
    replaces: bool,
    must_change: bool,
    is_random: bool,
    server_id: Option<String>,
    changes_key: bool,
}

#[derive(PartialEq, Eq, Debug)]
enum PwdAction {
    Add(String),
    Read(String),
    Remove(String),
    Disable(String),
    Copy(String, String),
    Trim,
    Browse,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let request = match parse(&xrootd_compat::words(arguments)) {
        Ok(request) => request,
        Err(text) => {
            err().line(format_args!("{PROGRAM}: {text}"));
            err().literal(USAGE);
            return ExitCode::FAILURE;
        }
    };
    if request.wants_help {
        out().literal(USAGE);
        return ExitCode::SUCCESS;
    }
    match perform(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            err().line(format_args!("{PROGRAM}: {text}"));
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<PwdAdminRequest, String> {
    let mut request = PwdAdminRequest::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{word} requires a value"));
        let mut user = || {
            let name = value()?;
            if is_user_name(&name) { Ok(name) } else { Err(format!("'{name}' cannot be the name of a user")) }
        };
        match word.as_str() {
            "-h" => request.wants_help = true,
            "-m" => match value()?.as_str() {
                "admin" => {}
                mode => return Err(format!("the mode '{mode}' is not supported; the only one is admin")),
            },
            "add" => request.action = Some(PwdAction::Add(user()?)),
            "update" => (request.action, request.replaces) = (Some(PwdAction::Add(user()?)), true),
            "read" => request.action = Some(PwdAction::Read(user()?)),
            "remove" => request.action = Some(PwdAction::Remove(user()?)),
            "disable" => request.action = Some(PwdAction::Disable(user()?)),
            "copy" => request.action = Some(PwdAction::Copy(user()?, user()?)),
            "trim" => request.action = Some(PwdAction::Trim),
            "browse" => request.action = Some(PwdAction::Browse),
            "-f" => request.file = Some(value()?.into()),
            "-dontask" => request.asks_nothing = true,
            "-force" => request.replaces = true,
            "-change" => request.must_change = true,
            "-nochange" => request.must_change = false,
            "-random" => request.is_random = true,
            "-norandom" => request.is_random = false,
            "-srvID" => request.server_id = Some(server_id(value()?)?),
            "-changepuk" => request.changes_key = true,
            "-nobackup" | "-backup" => {}
            _ => return Err(format!("unknown option '{word}'")),
        }
    }
    Ok(request)
}

/// Checks the name of a server, which clients see.
fn server_id(text: String) -> Result<String, String> {
    if is_server_id(&text) {
        Ok(text)
    } else {
        Err(format!(
            "'{text}' cannot be the name of a server: at most {SERVER_ID_BYTES_MAX} letters and digits"
        ))
    }
}

fn perform(request: &PwdAdminRequest) -> Result<(), String> {
    let path = path_of(request)?;
    become_owner(&path)?;
    let now = unix_seconds(SystemTime::now());
    let is_change = request.changes_key
        || request.server_id.is_some()
        || !matches!(request.action, None | Some(PwdAction::Browse | PwdAction::Read(_)));
    if is_change {
        perform_change(request, &path, now)?;
    }
    match &request.action {
        Some(PwdAction::Read(user)) => show(entry_of(&PwdFile::read_as_editor(&path)?, user)?),
        None | Some(PwdAction::Browse) => {
            PwdFile::read_as_editor(&path)?.entries().iter().for_each(show);
        }
        Some(_) => {}
    }
    Ok(())
}

/// Changes the file. All that waits for a person is done before, because other changes wait for this
/// one. Messages about the change are printed after it.
fn perform_change(request: &PwdAdminRequest, path: &Path, now: u32) -> Result<(), String> {
    let may_create = match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if !confirms(request, &format!("Create file {} [n]: ", path.display())) {
                return Err(format!("{}: {}", path.display(), base::errno_text(&error)));
            }
            true
        }
        _ => false,
    };
    let (stored, password) = match &request.action {
        Some(PwdAction::Add(user)) => {
            let password = new_password(request, user)?;
            (Some(StoredPassword::of_password(&password.secret, &mut SystemRng)), password.shown)
        }
        _ => (None, None),
    };
    let messages = PwdFile::update(path, now, |present| {
        let mut file = match present {
            Some(file) => file,
            None if may_create => PwdFile::default(),
            None => return Err(format!("{} was removed", path.display())),
        };
        let mut messages = complete(request, &mut file, now)?;
        messages.extend(password);
        messages.extend(change(request, stored.as_ref(), &mut file, now)?);
        Ok((file, messages))
    })?;
    messages.iter().for_each(|line| out().line(line));
    Ok(())
}

fn path_of(request: &PwdAdminRequest) -> Result<PathBuf, String> {
    match &request.file {
        Some(path) if path.is_dir() => Ok(path.join(ADMIN_FILE)),
        Some(path) => Ok(path.clone()),
        None => {
            let home = environment::home().ok_or("HOME is not set; name the file by -f")?;
            Ok(home.join(".xrd").join(ADMIN_FILE))
        }
    }
}

fn confirms(request: &PwdAdminRequest, question: &str) -> bool {
    if request.asks_nothing || !std::io::stdin().is_terminal() {
        return request.asks_nothing;
    }
    out().prompt(question);
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}

/// Adds the name and the key of the server where the file lacks them. Returns messages for the user.
fn complete(request: &PwdAdminRequest, file: &mut PwdFile, now: u32) -> Result<Vec<String>, String> {
    let mut messages = Vec::new();
    if request.server_id.is_some() || file.find(SERVER_ID).is_none() {
        let id = request.server_id.clone().unwrap_or_else(|| random_text(8));
        file.set_server_id(&id, now);
        messages.push(format!("Server ID: {id}"));
    }
    if request.changes_key || file.find(auth::pwd::SERVER_KEY).is_none() {
        let key = ServerKey::generate(&mut SystemRng).ok_or("no key of the server can be made")?;
        file.set(key.entry(now));
        messages.push("The server has a new key. Clients that know an earlier one refuse it".to_owned());
    }
    Ok(messages)
}

/// Changes the entry of a user. Returns a message for the user.
fn change(
    request: &PwdAdminRequest,
    stored: Option<&StoredPassword>,
    file: &mut PwdFile,
    now: u32,
) -> Result<Option<String>, String> {
    match (&request.action, stored) {
        (Some(PwdAction::Add(user)), Some(stored)) => {
            let name = name_of(user);
            if file.find(&name).is_some() && !request.replaces {
                return Err(format!("the user {user} exists; replace the password by update"));
            }
            let status = if request.must_change { EntryStatus::ONE_TIME } else { EntryStatus::OK };
            file.set(entry(name, status, now, stored.buffers().map(Secret::from)));
            return Ok(Some(format!("Entry for tag '{}' created / updated", name_of(user))));
        }
        (Some(PwdAction::Remove(user)), _) if !file.remove(&name_of(user)) => return Err(no_user(user)),
        (Some(PwdAction::Disable(user)), _) => {
            let changed = entry_of(file, user)?.clone();
            file.set(PwdEntry { status: EntryStatus::DISABLED, changed: now, ..changed });
        }
        (Some(PwdAction::Copy(user, new)), _) => {
            if file.find(&name_of(new)).is_some() && !request.replaces {
                return Err(format!("the user {new} exists"));
            }
            let copied = entry_of(file, user)?.clone();
            file.set(PwdEntry { name: name_of(new), changed: now, ..copied });
        }
        _ => {}
    }
    Ok(None)
}

/// A password of a user.
struct NewPassword {
    secret: Secret,
    /// The line that shows it, if it was made here.
    shown: Option<String>,
}

fn new_password(request: &PwdAdminRequest, user: &str) -> Result<NewPassword, String> {
    if request.is_random {
        let password = random_text(RANDOM_LETTERS);
        let shown = Some(format!("Password of {user}: {password}"));
        return Ok(NewPassword { secret: Secret::new(password.into_bytes()), shown });
    }
    let ask =
        |question: &str| ask_password(question).ok_or("no password was typed at a terminal; use -random");
    let password = ask(&format!("Password of {user}: "))?;
    let again = ask("Again: ")?;
    if password.expose().is_empty() || password.expose().len() > PASSWORD_BYTES_MAX {
        return Err("the password is empty or too long".to_owned());
    }
    if !password.is_equal(again.expose()) {
        return Err("the passwords differ".to_owned());
    }
    Ok(NewPassword { secret: password, shown: None })
}

fn random_text(letters: usize) -> String {
    let mut random = vec![0; letters];
    SystemRng.fill(&mut random);
    random.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 32)).copied().map(char::from)).collect()
}

fn name_of(user: &str) -> String {
    format!("{user}{MODULE_SUFFIX}")
}

fn no_user(user: &str) -> String {
    format!("there is no user {user}")
}

fn entry_of<'a>(file: &'a PwdFile, user: &str) -> Result<&'a PwdEntry, String> {
    file.find(&name_of(user)).ok_or_else(|| no_user(user))
}

fn entry(name: String, status: EntryStatus, changed: u32, buffers: [Secret; 2]) -> PwdEntry {
    let [one, two] = buffers;
    PwdEntry { name, status, count: 0, changed, buffers: [one, two, Secret::default(), Secret::default()] }
}

/// Shows an entry without its contents.
fn show(entry: &PwdEntry) {
    let lengths: Vec<String> = entry.buffers.iter().map(|buffer| buffer.expose().len().to_string()).collect();
    let changed = local_time(i64::from(entry.changed), "%d%b%Y:%H:%M:%S").unwrap_or_default();
    out().line(format_args!(
        "st:{} cn:{} buf:{} mod:{} name:{}",
        entry.status.0,
        entry.count,
        lengths.join(","),
        changed,
        entry.name
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn command_lines() {
        let request =
            parse(&words("-m admin update alice -f /x -dontask -random -change -srvID lab")).unwrap();
        let expected = PwdAdminRequest {
            action: Some(PwdAction::Add("alice".to_owned())),
            file: Some("/x".into()),
            asks_nothing: true,
            replaces: true,
            must_change: true,
            is_random: true,
            server_id: Some("lab".to_owned()),
            ..PwdAdminRequest::default()
        };
        assert_eq!(request, expected);
        for wrong in ["-m netrc", "add", "add +++SrvID", "-x", "copy a", "-srvID a&b", "-f"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_users_and_a_key() {
        let directory = std::env::temp_dir().join(format!("scalla-xrdpwdadmin-{}", std::process::id()));
        let path = directory.join("pwdadmin");
        let perform = |text: &str| {
            let request = parse(&words(&format!("{text} -dontask -f {}", path.display()))).unwrap();
            perform(&request).map(|()| PwdFile::read(&path).unwrap())
        };
        assert!(perform("browse").is_err(), "it does not exist");
        let file = perform("add alice -random").unwrap();
        assert_eq!(file.find("alice_1").unwrap().status, EntryStatus::OK);
        assert!(ServerKey::of_file(&file, &mut SystemRng).is_ok());
        assert!(perform("add alice -random").unwrap_err().contains("exists"));
        let file = perform("copy alice bob").unwrap();
        let hash = |user: &str| file.find(user).unwrap().buffers[1].expose().to_vec();
        assert_eq!(hash("alice_1"), hash("bob_1"));
        let file = perform("disable bob").unwrap();
        assert_eq!(file.find("bob_1").unwrap().status, EntryStatus::DISABLED);
        let file = perform("remove bob").unwrap();
        assert!(file.find("bob_1").is_none() && file.find("alice_1").is_some());
        assert!(perform("remove bob").is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
