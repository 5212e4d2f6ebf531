//! Tests of `ofs.notify` and `ofs.notifymsg`.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use config::*;
use std::io;
use std::path::Path;

fn load_text(text: &str) -> Loaded {
    let evaluation = Evaluation { program: "xrootd".to_owned(), ..Evaluation::default() };
    let request = ConfigInput { file: Some("f".to_owned()), evaluation, ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn accepted(text: &str) -> NotificationConfig {
    let loaded = load_text(text);
    assert!(loaded.report.is_ok() && loaded.report.problems().is_empty(), "{text}: {}", loaded.report);
    loaded.effective.notification
}

fn notification(text: &str) -> Notification {
    accepted(text).notification.value.unwrap()
}

fn names(value: &Notification) -> String {
    value.events.iter().map(|event| event.name()).collect::<Vec<_>>().join(" ")
}

/// The forms that XRootD 5.5.3 accepts.
#[test]
fn events_limits_and_receivers_are_read() {
    let program = |path: &str, arguments: &[&str]| {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        NotifyTarget::Program(CopyProgram { path: path.into(), arguments })
    };
    let pipe = NotifyTarget::Pipe("/run/fifo".into());
    for (text, events, waiting, target) in [
        ("create closew |/n a -b", "closew create", (90, 10), program("/n", &["a", "-b"])),
        ("rm | /n -u", "rm", (90, 10), program("/n", &["-u"])),
        (
            "all -create -close msgs 5 7 >/run/fifo",
            "chmod mkdir mv openr openw rm rmdir trunc fwrite",
            (5, 7),
            pipe.clone(),
        ),
        ("open close msgs 5 > /run/fifo", "closer closew openr openw", (5, 10), pipe),
        ("mkdir msgs 0 0 |/n", "mkdir", (0, 0), program("/n", &[])),
    ] {
        let value = notification(&format!("ofs.notify {text}\n"));
        assert_eq!(
            (names(&value).as_str(), value.waiting, &value.target),
            (events, waiting, &target),
            "{text}"
        );
    }
    assert_eq!(names(&notification("ofs.notify all |/a\nofs.notify rm |/b\n")), "rm", "the last one counts");
    assert_eq!(notification("ofs.notify rm |/a\n").waiting_bytes_max(), 90 * 1360 + 10 * 4352);
    assert_eq!(accepted("").notification.value, None);
}

#[test]
fn texts_have_variables() {
    let values = accepted("ofs.notifymsg mv $TID  \\$x $LFN1?$CGI1>$LFN2\\x\nofs.notify mv |/n\n");
    let message = &values.messages[&NotifyEvent::Mv];
    let text = |text: &str| NotifyPart::Text(text.to_owned());
    let variable = NotifyPart::Variable;
    assert_eq!(
        message.parts,
        [
            variable(NotifyVariable::Client),
            text(" $x "),
            variable(NotifyVariable::Path),
            text("?"),
            variable(NotifyVariable::Cgi),
            text(">"),
            variable(NotifyVariable::NewPath),
            text("\\x"),
        ]
    );
    let both = accepted("ofs.notify all |/n\nofs.notifymsg close $LFN $FSIZE\n").messages;
    assert_eq!(
        both.keys().copied().collect::<Vec<_>>(),
        [NotifyEvent::CloseReader, NotifyEvent::CloseWriter]
    );
    for event in NotifyEvent::ALL {
        let parsed = NotifyMessage::parse(&event.built_in_text()).unwrap();
        assert!(parsed.has(NotifyVariable::Client), "{event:?}");
    }
}

#[test]
fn faults_name_their_line_and_what_is_allowed() {
    for (text, place, words) in [
        ("ofs.notify nosuch |/n", "f:1:12", "there is no event 'nosuch'; allowed: all chmod"),
        ("ofs.notify create remove |/n", "f:1:19", "there is no event 'remove'"),
        ("ofs.notify |/n", "f:1:1", "notify events not specified; allowed: all"),
        ("ofs.notify -create |/n", "f:1:1", "notify events not specified"),
        ("ofs.notify create", "f:1:1", "notify program or pipe not specified; allowed: [-]event"),
        ("ofs.notify create |", "f:1:1", "notify program not specified"),
        ("ofs.notify create >", "f:1:1", "notify pipe not specified"),
        ("ofs.notify create |cat", "f:1:19", "notify program"),
        ("ofs.notify create >fifo", "f:1:19", "notify pipe"),
        ("ofs.notify create msgs |/n", "f:1:24", "msgs min"),
        ("ofs.notify create msgs 1 100001 |/n", "f:1:26", "msgs max"),
        ("ofs.notifymsg nosuch $TID", "f:1:15", "there is no event 'nosuch'"),
        ("ofs.notifymsg all $TID", "f:1:15", "there is no event 'all'"),
        ("ofs.notifymsg create", "f:1:1", "notifymsg text not specified"),
        ("ofs.notifymsg create $NOSUCH", "f:1:22", "there is no variable '$NOSUCH'; allowed: $TID $LFN"),
        ("ofs.notifymsg create ${LFN}", "f:1:22", "there is no variable '$'"),
        ("ofs.notifymsg create x $", "f:1:22", "there is no variable '$'"),
        ("ofs.notifymsg create $LFN3", "f:1:22", "there is no variable '$LFN3'"),
    ] {
        let loaded = load_text(&format!("{text}\n"));
        let report = loaded.report.to_string();
        assert!(!loaded.report.is_ok(), "{text}");
        assert!(report.starts_with(&format!("{place}: error")) && report.contains(words), "{text}: {report}");
    }
}

#[test]
fn values_are_shown_as_directives_with_the_same_effect() {
    let text = "ofs.notify create closew msgs 5 7 |/n a b\nofs.notifymsg closew $TID \\$ $LFN $FSIZE\n";
    let values = load_text(text).effective;
    let lines = show(&values);
    let shown = lines.iter().filter(|line| line.directive.starts_with("ofs.notify"));
    let shown: String = shown
        .map(|line| format!("{} {}\n", line.directive, line.value.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(
        shown,
        "ofs.notify closew create msgs 5 7 |/n a b\nofs.notifymsg closew $TID \\$ $LFN $FSIZE\n"
    );
    let again = accepted(&shown);
    assert_eq!(again.notification.value, values.notification.notification.value);
    assert_eq!(
        again.messages[&NotifyEvent::CloseWriter].value,
        values.notification.messages[&NotifyEvent::CloseWriter].value
    );
}

/// A disk without files.
struct EmptyDisk;
impl Disk for EmptyDisk {
    fn look(&self, _: &Path) -> io::Result<PathAccess> {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[test]
fn directives_without_effect_are_reported() {
    let found = |text: &str| {
        let report = check(&load_text(text).effective, &EmptyDisk, Strictness::Strict);
        let problems = report.problems().iter().map(ToString::to_string);
        problems.filter(|problem| problem.contains("ofs.notify")).collect::<Vec<_>>()
    };
    let role = "all.role manager\nall.manager h:1\n";
    for (text, expected) in [
        ("ofs.notifymsg rm $LFN\n", "f:1:1: warning: ofs.notifymsg: nothing is reported"),
        (
            "ofs.notifymsg rm $LFN\nofs.notify mv >/p\n",
            "f:1:1: warning: ofs.notifymsg rm: the event is not reported",
        ),
        ("ofs.notify mv |/n\n", "f:1:1: error: ofs.notify: /n: "),
        (&format!("{role}ofs.notify mv |/n\n"), "f:3:1: warning: ofs.notify: a redirector has no files"),
    ] {
        let found = found(text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
    }
    assert!(found("ofs.notify mv >/p\nofs.notifymsg mv $LFN\n").is_empty());
}
