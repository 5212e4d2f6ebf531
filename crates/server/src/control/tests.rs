//! Tests that a server ends when it loses a thread. The server is a separate process, for which
//! this test program is started again, because its end would end the test.

use crate::daemon::{self, Launch, LogTarget};
use crate::log::{Levels, Retention};
use config::{ConfigInput, DirectorySetting, Evaluation, Overrides, Port, Strictness};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable with the directory of the server.
const DIRECTORY: &str = "SCALLA_TEST_DIRECTORY";

/// Environment variable with the thread or task that the child process loses.
const LOSS: &str = "SCALLA_TEST_LOSS";

fn launch(directory: &Path) -> Launch {
    Launch {
        load: ConfigInput {
            file: None,
            evaluation: Evaluation { program: "xrootd".to_owned(), ..Evaluation::default() },
            overrides: Overrides {
                port: Some(Port::Any),
                admin_path: Some(DirectorySetting { path: directory.join("admin"), group: false }),
                ..Overrides::default()
            },
            strictness: Strictness::Strict,
        },
        log: LogTarget::File { path: directory.join("log"), exact: true, retention: Retention::All },
        levels: Levels::raised(0),
        precise: false,
        user: None,
        background: false,
        pid_file: None,
        traditional_files: false,
        announce: true,
    }
}

/// Runs the child process: a whole server without a command line.
fn serve(directory: &Path, loss: &str) {
    let launch = launch(directory);
    let (control, log) = daemon::start(&launch, None).unwrap();
    let loops = control.running.loops().handles().to_vec();
    match loss {
        "loop" => assert!(loops.last().unwrap().run(|| panic!("a fault of ours"))),
        "task" => {
            assert!(loops[0].run(|| net::spawn_essential("a task", async { Err("no reason".to_owned()) })))
        }
        _ => unreachable!(),
    }
    let code = control.run(log);
    // The test harness has exit statuses of its own.
    std::process::exit(if code == super::ExitCode::from(super::FAULT) { i32::from(super::FAULT) } else { 1 });
}

/// Starts a server that loses this thread or task, and returns its exit status and its log.
fn after_the_loss_of(loss: &str) -> (Option<i32>, String) {
    let directory = std::env::temp_dir().join(format!("scalla-fault-{loss}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control::tests::a_server_that_loses_a_thread_ends_with_a_last_line"])
        .env(DIRECTORY, &directory)
        .env(LOSS, loss)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let log = std::fs::read_to_string(directory.join("log")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    (status.code(), log)
}

#[test]
fn a_server_that_loses_a_thread_ends_with_a_last_line() {
    if let (Some(directory), Ok(loss)) = (std::env::var_os(DIRECTORY), std::env::var(LOSS)) {
        return serve(&PathBuf::from(directory), &loss);
    }
    for (loss, line) in [
        ("loop", "ended: it panicked: a fault of ours; the server ends"),
        ("task", "a task ended: no reason; the server ends"),
    ] {
        let (status, log) = after_the_loss_of(loss);
        assert_eq!(status, Some(i32::from(super::FAULT)), "{log}");
        let last = log.lines().last().unwrap();
        assert!(last.contains(line) && last.contains("restart it"), "{log}");
    }
}

#[test]
fn a_reload_reports_keys_and_rules() {
    use super::{
        AccessRefresh, IssuersRefresh, PolicyRefresh, ReloadAnswer, RulesRefresh, SecretRefresh, with_access,
    };
    let answer = || ReloadAnswer {
        applied: vec!["xrd.allow".to_owned()],
        need_restart: Vec::new(),
        warnings: vec!["a line".to_owned()],
    };
    let access = |policy| AccessRefresh { warnings: vec!["sss: no such key".to_owned()], policy };
    let unchanged = || PolicyRefresh {
        rules: Some(RulesRefresh::Unchanged),
        issuers: Some(IssuersRefresh::Unchanged),
        macaroons: Some(SecretRefresh::Unchanged),
    };
    for policy in [PolicyRefresh::default(), unchanged()] {
        let reloaded = with_access(answer(), access(policy));
        assert_eq!(reloaded.applied, ["xrd.allow"]);
        assert_eq!(reloaded.warnings, ["a line", "sss: no such key"]);
    }
    let replaced = PolicyRefresh { issuers: Some(IssuersRefresh::Replaced(1)), ..unchanged() };
    assert_eq!(with_access(answer(), access(replaced)).applied, ["xrd.allow", "the token issuers"]);
    let error = auth::tokens::IssuerFileError::Unusable { path: "/f".into(), reason: "gone".to_owned() };
    let kept = PolicyRefresh { issuers: Some(IssuersRefresh::Kept(error)), ..unchanged() };
    let reloaded = with_access(answer(), access(kept));
    assert_eq!(
        reloaded.warnings.last().unwrap(),
        "token issuers: the earlier ones stay in force: /f is not used: gone"
    );
    let replaced = PolicyRefresh { macaroons: Some(SecretRefresh::Replaced), ..unchanged() };
    assert_eq!(with_access(answer(), access(replaced)).applied, ["xrd.allow", "the secret of macaroons"]);
    let error = auth::macaroons::MacaroonSecretError::Unsafe {
        path: "/f".into(),
        reason: "r".to_owned(),
        remedy: "m".to_owned(),
    };
    let kept = PolicyRefresh { macaroons: Some(SecretRefresh::Kept(error)), ..unchanged() };
    let reloaded = with_access(answer(), access(kept));
    let expected = "macaroons: the earlier secret stays in force: /f is not used: r; m";
    assert_eq!(reloaded.warnings.last().unwrap(), expected);
}
