//! `xrdacctest`: asks the rules of an authorization database, with the command line and output of
//! XRootD's program.

use crate::evaluation::load_here;
use crate::exit_status;
use crate::printer::{err, out};
use crate::xrootd_compat;
use auth::access::{AccessDatabase, AccessOperation, AuthdbCheck, Principal};
use base::LogicalPath;
use config::Loaded;
use std::ffi::OsString;
use std::io::{BufRead, Read};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: xrdacctest [-c <cfn>] [<ids> | <user> <host>] <act>

<ids>: -a <auth> -g <grp> -h <host> -o <org> -r <role> -u <user>
<act>: <opc> <path> [<path> [...]]
<opc>: cr - create    mv - rename    st - status    lk - lock
       rd - read      wr - write     ls - readdir   rm - remove
       ec - excl create              ei - excl rename
       *  - zap args  ?  - display privs
";

/// The configuration file without `-c`.
const CONFIG_DEFAULT: &str = "./acc.cf";
/// Maximum length of a line of questions in bytes, with its newline.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Exit status if the rules cannot be used.
const NOT_INITIALIZED: u8 = 2;

/// Operation codes of the command line.
const OPERATIONS: [(&str, AccessOperation); 13] = [
    ("cr", AccessOperation::Create),
    ("mv", AccessOperation::Rename),
    ("st", AccessOperation::Stat),
    ("lk", AccessOperation::Lock),
    ("rd", AccessOperation::Read),
    ("wr", AccessOperation::Update),
    ("ls", AccessOperation::ReadDirectory),
    ("rm", AccessOperation::Delete),
    ("ec", AccessOperation::ExclusiveCreate),
    ("ei", AccessOperation::ExclusiveInsert),
    ("cm", AccessOperation::ChangeMode),
    ("co", AccessOperation::ChangeOwner),
    ("mk", AccessOperation::MakeDirectory),
];

/// The client that questions are about. It persists between lines of questions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct TestedClient {
    name: String,
    host: String,
    groups: String,
    organizations: String,
    roles: String,
}

/// A question.
#[derive(PartialEq, Eq, Debug)]
enum AccessQuestion {
    /// `?`: the privileges on each path.
    Privileges(Vec<String>),
    /// Whether an operation is allowed on each path.
    Operation(AccessOperation, Vec<String>),
    /// `*`: forget the client.
    Forget,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut words = xrootd_compat::words(arguments);
    let mut file = CONFIG_DEFAULT.to_owned();
    if words.first().is_some_and(|word| word == "-c") {
        if words.len() < 2 {
            return usage("option requires an argument -- 'c'");
        }
        file = words.remove(1);
        words.remove(0);
    }
    let database = match load(&file) {
        Ok(database) => database,
        Err(text) => {
            err().lines(format_args!("{text}\ntestaccess: Initialization failed.\n"));
            return ExitCode::from(NOT_INITIALIZED);
        }
    };
    let mut client = TestedClient::default();
    if words.is_empty() {
        return ask_each_line(&database, &mut client);
    }
    match parse_question(&words, &mut client) {
        Ok(question) => {
            answer(&database, &client, &question);
            ExitCode::SUCCESS
        }
        Err(why) => usage(&why),
    }
}

fn usage(why: &str) -> ExitCode {
    err().line(format_args!("xrdacctest: {why}"));
    err().literal(USAGE);
    ExitCode::from(exit_status::FAILED)
}

/// Loads the rules that a configuration file names. Only its `acc.` directives matter, and unlike
/// in a server they do not need `ofs.authorize`.
fn load(file: &str) -> Result<AccessDatabase, String> {
    let Loaded { effective, report } = load_here(Path::new(file), None);
    let without_switch = |problem: &&config::Problem| {
        *effective.authorization.enabled || problem.kind != config::ProblemKind::Unprotected
    };
    let errors: Vec<String> = report.errors().filter(without_switch).map(ToString::to_string).collect();
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let source = server::authdb_source(&effective.authorization);
    // The questions are those of a test, which protects nothing.
    AccessDatabase::load(&source, AuthdbCheck::None, &server::SystemNetgroups)
        .map_err(|error| error.to_string())
}

/// Answers each line of the standard input.
fn ask_each_line(database: &AccessDatabase, client: &mut TestedClient) -> ExitCode {
    let mut input = std::io::stdin().lock();
    loop {
        err().literal("Enter arguments: ");
        let mut line = Vec::new();
        if let Err(error) = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line) {
            err().line(format_args!("xrdacctest: cannot read the standard input: {error}"));
            return ExitCode::from(exit_status::FAILED);
        }
        // The rest of a longer line must not be answered as a question of its own.
        if line.len() as u64 > LINE_BYTES_MAX {
            return usage("line too long");
        }
        let words: Vec<String> =
            String::from_utf8_lossy(&line).split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return ExitCode::SUCCESS;
        }
        match parse_question(&words, client) {
            Ok(AccessQuestion::Forget) => *client = TestedClient::default(),
            Ok(question) => answer(database, client, &question),
            Err(why) => drop(usage(&why)),
        }
    }
}

/// Parses the client and the question.
fn parse_question(words: &[String], client: &mut TestedClient) -> Result<AccessQuestion, String> {
    let mut rest = words.iter().map(String::as_str).peekable();
    let mut has_ids = false;
    while let Some(option) = rest.next_if(|word| word.starts_with('-')) {
        let mut value = || rest.next().ok_or(format!("option requires an argument -- '{}'", &option[1..]));
        has_ids = true;
        match option {
            "-a" => drop(value()?),
            "-g" => client.groups = value()?.to_owned(),
            "-h" => client.host = value()?.to_owned(),
            "-o" => client.organizations = value()?.to_owned(),
            "-r" => client.roles = value()?.to_owned(),
            "-u" => client.name = value()?.to_owned(),
            _ => return Err(format!("{option} option is invalid.")),
        }
    }
    if rest.peek() == Some(&"*") {
        return Ok(AccessQuestion::Forget);
    }
    let is_code = |word: &str| word == "?" || OPERATIONS.iter().any(|(code, _)| *code == word);
    if !has_ids && rest.peek().is_some_and(|word| !is_code(word)) {
        client.name = rest.next().unwrap_or_default().to_owned();
        client.host = rest.next().ok_or("host not specified.")?.to_owned();
    }
    let code = rest.next().ok_or("operation not specified.")?;
    let operation = OPERATIONS.iter().find(|(known, _)| *known == code).map(|(_, operation)| *operation);
    if code != "?" && operation.is_none() {
        return Err(format!("Invalid operation - {code}"));
    }
    let paths: Vec<String> = rest.map(str::to_owned).collect();
    if paths.is_empty() {
        return Err("path not specified.".to_owned());
    }
    Ok(operation.map_or(AccessQuestion::Privileges(paths.clone()), |operation| {
        AccessQuestion::Operation(operation, paths)
    }))
}

fn answer(database: &AccessDatabase, client: &TestedClient, question: &AccessQuestion) {
    let name = (!client.name.is_empty()).then_some(client.name.as_str());
    let principal = Principal {
        protocol: "acctest",
        name,
        host: &client.host,
        organizations: &client.organizations,
        roles: &client.roles,
        groups: &client.groups,
        ..Principal::default()
    };
    let (operation, paths) = match question {
        AccessQuestion::Privileges(paths) => (None, paths),
        AccessQuestion::Operation(operation, paths) => (Some(*operation), paths),
        AccessQuestion::Forget => return,
    };
    let records = database.records_of(&principal);
    if records.is_none() {
        err().line(format_args!("the numbers of organizations, roles and groups differ"));
    }
    let records = records.unwrap_or_default();
    for text in paths {
        let Ok(path) = LogicalPath::parse(text.as_bytes()) else {
            err().line(format_args!("{text} is not an absolute path without '..'"));
            continue;
        };
        let privileges = database.privileges(&records, name, &path);
        match operation {
            None => out().line(format_args!("{privileges}: {text}")),
            Some(operation) => {
                let verdict = if operation.is_granted_by(privileges) { "allowed" } else { "denied" };
                out().line(format_args!("{verdict}: {text}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (Result<AccessQuestion, String>, TestedClient) {
        let mut client = TestedClient::default();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (parse_question(&words, &mut client), client)
    }

    #[test]
    fn clients_are_named_in_two_ways() {
        let (question, client) = parse("bob h.o rd /a /b");
        let paths = vec!["/a".to_owned(), "/b".to_owned()];
        assert_eq!(question, Ok(AccessQuestion::Operation(AccessOperation::Read, paths)));
        assert_eq!((client.name.as_str(), client.host.as_str()), ("bob", "h.o"));
        let (question, client) = parse("-u bob -g x -o cms -r p -h h -a unix ? /a");
        assert_eq!(question, Ok(AccessQuestion::Privileges(vec!["/a".to_owned()])));
        assert_eq!((client.groups.as_str(), client.organizations.as_str()), ("x", "cms"));
        assert!(matches!(parse("* rd /a").0, Ok(AccessQuestion::Forget)));
    }

    #[test]
    fn invalid_questions() {
        let table = [
            ("bob", "host not specified."),
            ("bob h", "operation not specified."),
            ("bob h zz /a", "Invalid operation - zz"),
            ("bob h rd", "path not specified."),
            ("-g", "option requires an argument -- 'g'"),
            ("-x 1 rd /a", "-x option is invalid."),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line).0, Err(expected.to_owned()), "{line}");
        }
    }
}
