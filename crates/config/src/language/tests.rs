//! Tests of the language, line by line.

use super::*;
use crate::report::{ConfigReport, Strictness};
use crate::source::{ConfigSource, MemorySource};

fn evaluation() -> Evaluation {
    Evaluation {
        program: "xrootd".to_owned(),
        instance: Some("foo".to_owned()),
        host: "vm".to_owned(),
        environment: [("HOME".to_owned(), "/root".to_owned())].into(),
    }
}

/// Returns directives, environment changes and problems as text.
fn run_from(source: &dyn ConfigSource) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut report = ConfigReport::new(Strictness::Strict);
    let evaluated = evaluate("main", source, &evaluation(), &|name| name == "xrd.port", &mut report);
    let statements = evaluated.statements.into_iter().map(|statement| {
        let mut words = vec![statement.name.text];
        words.extend(statement.arguments.into_iter().map(|token| token.text));
        words.join(" ")
    });
    let environment = evaluated.environment.into_iter().map(|e| format!("{}={}", e.name, e.value));
    let problems = report.problems().iter().map(ToString::to_string);
    (statements.collect(), environment.collect(), problems.collect())
}

fn run(text: &str) -> (Vec<String>, Vec<String>) {
    let (statements, _, problems) = run_from(&MemorySource::new().with("main", text));
    (statements, problems)
}

fn accepted(text: &str) -> Vec<String> {
    let (statements, problems) = run(text);
    assert_eq!(problems, Vec::<String>::new(), "{text}");
    statements
}

fn holds(condition: &str) -> bool {
    !accepted(&format!("{condition}\nyes 1\nfi\n")).is_empty()
}

#[test]
fn lines_become_tokens() {
    assert_eq!(accepted("  a.b\t1  2 \r\n\n# c 1\n  # c 2\\\na.c # x"), ["a.b 1 2", "a.c # x"]);
    assert_eq!(accepted("a.b /x\\\ny\n"), ["a.b /x y"], "a continuation starts a new word");
    assert_eq!(accepted("a.b 1\\\n# comment\n\n  2 \\  \n"), ["a.b 1 2"]);
}

#[test]
fn positions_refer_to_the_text() {
    let mut report = ConfigReport::new(Strictness::Strict);
    let source = MemorySource::new().with("main", "#\n  a.b é $[no] x \\\n   y\n");
    let evaluated = evaluate("main", &source, &evaluation(), &|_| false, &mut report);
    let statement = &evaluated.statements[0];
    let at = |token: &DirectiveToken| (token.position.line, token.position.column);
    assert_eq!(at(&statement.name), (2, 3));
    assert_eq!(statement.arguments.iter().map(at).collect::<Vec<_>>(), [(2, 7), (2, 15), (3, 4)]);
}

#[test]
fn over_long_lines_and_binary_text_are_errors() {
    let at_limit = format!("a {}", "x".repeat(LINE_CHARS_MAX - 2));
    assert_eq!(accepted(&at_limit).len(), 1);
    let (_, problems) = run(&format!("ok\n{at_limit}x\n"));
    assert_eq!(problems, ["main:2:1: error: line of 16385 characters; at most 16384 are allowed"]);
    let (statements, _, problems) =
        run_from(&MemorySource::new().with("main", b"# \xff fine\na.b \xff\nc\n"));
    assert_eq!(statements, ["c"]);
    assert!(problems[0].starts_with("main:2:5: error:"), "{problems:?}");
}

#[test]
fn condition_table() {
    for (condition, expected) in [
        ("if vm", true),
        ("if o* v*", true),
        ("if v*m", true),
        ("if VM", false),
        ("if vm exec cmsd", false),
        ("if vm && exec cmsd", false),
        ("if vm exec xrootd", true),
        ("if other exec xrootd", false),
        ("if exec cmsd xrootd", true),
        ("if exec xrootd.1", false),
        ("if exec xrootd named bar", true),
        ("if exec xrootd && named bar", false),
        ("if exec xrootd && named bar foo", true),
        ("if named f*", false),
        ("if named foo", true),
        ("if named foo && exec cmsd", true),
        ("if defined ?~NOPE ?~HOME", true),
        ("if defined ?~NOPE", false),
        ("if defined ?HOME", false),
        ("if defined ?~HOME && exec xrootd && named foo", true),
        ("if defined ?~HOME && defined ?~NOPE && exec xrootd", false),
        ("if defined ?~HOME && defined ?~HOME && exec xrootd", true),
        ("if vm defined ?~HOME && named foo", true),
        // Tokens after the deciding group are not checked.
        ("if other defined", false),
        ("if defined ?nope nonsense", false),
    ] {
        assert_eq!(holds(condition), expected, "{condition}");
    }
}

#[test]
fn the_anonymous_instance_has_a_name() {
    let source = MemorySource::new().with("main", "if named anon\nyes\nfi\n");
    let evaluation = Evaluation { instance: None, ..evaluation() };
    let mut report = ConfigReport::default();
    assert_eq!(evaluate("main", &source, &evaluation, &|_| false, &mut report).statements.len(), 1);
}

#[test]
fn invalid_conditions_are_errors_with_a_position() {
    for (condition, problem) in [
        ("if", "1:1: error: Host name missing after 'if' in if directive"),
        ("if exec", "1:4: error: Program name missing after 'if exec' in if directive"),
        ("if exec && named foo", "1:4: error: Program name missing after 'if exec' in if directive"),
        ("if named", "1:4: error: Instance name missing after 'if named' in if directive"),
        ("if exec xrootd && named", "1:19: error: Instance name missing after 'if named' in if directive"),
        ("if defined", "1:4: error: '?var' missing after 'defined' in if directive"),
        ("if defined h", "1:4: error: '?var' missing after 'defined' in if directive"),
        ("if defined ?~HOME vm", "1:19: error: vm is invalid for defined test in if directive"),
        ("if defined ?~HOME &&", "1:19: error: Keyword missing after '&&' in if directive"),
        ("if exec xrootd &&", "1:16: error: Keyword missing after '&&' in if directive"),
        ("if exec xrootd && vm", "1:19: error: vm is invalid after '&&' in if directive"),
        ("if exec xrootd && defined ?a", "1:19: error: defined is invalid after '&&' in if directive"),
        ("if defined ?~HOME && vm", "1:22: error: vm is invalid after '&&' in if directive"),
    ] {
        let (statements, problems) = run(&format!("{condition}\nno\nfi\n"));
        assert_eq!(problems, [format!("main:{problem}")], "{condition}");
        assert!(statements.is_empty(), "{condition}");
    }
}

#[test]
fn the_first_true_branch_is_used() {
    let chain = |a: &str, b: &str| format!("if {a}\n1\nelse if {b}\n2\nelse\n3\nfi\n4\n");
    assert_eq!(accepted(&chain("vm", "vm")), ["1", "4"]);
    assert_eq!(accepted(&chain("no", "vm")), ["2", "4"]);
    assert_eq!(accepted(&chain("no", "no")), ["3", "4"]);
    assert_eq!(accepted("if no\nset x = 1\na $undefined\nfi\nb\n"), ["b"], "a false branch has no effect");
}

#[test]
fn if_and_fi_must_match() {
    for (text, expected) in [
        ("fi", vec!["main:1:1: error: No preceding 'if' for 'fi'."]),
        ("else", vec!["main:1:1: error: No preceding 'if' for 'else'."]),
        ("if no\nelse\nelse if vm\nfi", vec!["main:3:1: error: No preceding 'if' for 'else'."]),
        ("if vm\na", vec!["main:1:1: error: Missing 'fi' for last 'if'."]),
        ("if vm\nif vm\nfi\nfi\n", vec!["main:2:1: error: Missing 'fi' for last 'if'."]),
        ("if vm\ncontinue /x\nfi", vec!["main:2:1: error: 'continue' invalid within 'if-fi'."]),
        (
            "if no\nelse what\nfi",
            vec!["main:2:6: error: 'what' is invalid after 'else'; 'else' or 'else if CONDITION'"],
        ),
    ] {
        assert_eq!(run(text).1, expected, "{text}");
    }
}

#[test]
fn a_directive_may_carry_its_condition() {
    assert_eq!(accepted("xrd.port 1213 if exec cmsd\nxrd.port 1094 if vm exec xrootd\n"), ["xrd.port 1094"]);
    assert_eq!(accepted("other 1213 if exec cmsd\n"), ["other 1213 if exec cmsd"]);
    let (statements, problems) = run("xrd.port 1 if\n");
    assert!(statements.is_empty());
    assert_eq!(problems, ["main:1:12: error: Host name missing after 'if' in if directive"]);
}

#[test]
fn variables_are_set_in_every_spelling() {
    for text in ["set a=5", "set a =5", "set a= 5", "set a = 5", "set -q a = 5", "set -V a=5", "set -v a = 5"]
    {
        assert_eq!(accepted(&format!("{text}\nx $a\n")), ["x 5"], "{text}");
    }
    assert_eq!(accepted("set a = 5\nset a = 6\nx ${a}1 \\$a\n"), ["x 61 $a"]);
    assert_eq!(accepted("set a =\nx $a $[no] y\nif defined ?a\nz\nfi\n"), ["x y", "z"]);
    assert_eq!(accepted("set a_b = 5\nset a = 6\nx $a_b ${a_b}\n"), ["x 6_b 5"]);
    assert_eq!(accepted("set h = ${HOME}/x\nx $h\n"), ["x /root/x"]);
}

#[test]
fn set_reads_the_environment_and_setenv_the_variables() {
    let source = MemorySource::new().with("main", "set a = 5\nsetenv FOO = x$a\nset b = $FOO\ny $b\n");
    let (statements, environment, problems) = run_from(&source);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(statements, ["y x5"]);
    assert_eq!(environment, ["FOO=x5"]);
}

#[test]
fn a_variable_may_hold_a_file() {
    let main = "set a < /secret\nx $a\n";
    let with = |content: &str| run_from(&MemorySource::new().with("main", main).with("/secret", content));
    assert_eq!(with("s3\n").0, ["x s3"]);
    assert_eq!(with(&"s".repeat(VALUE_FILE_BYTES_MAX)).2[0], {
        "main:1:9: error: Set variable a cannot be set via path /secret; it has 1024 bytes; \
         fewer than 1024 are allowed"
    });
    assert_eq!(run(main).1[0], {
        "main:1:9: error: Set variable a cannot be set via path /secret; no such file or directory"
    });
}

#[test]
fn invalid_assignments_are_errors_with_a_position() {
    for (text, problem) in [
        ("set", "1:1: error: Missing variable name after 'set'."),
        ("set a", "1:5: error: Missing '=' after set a"),
        ("set a b", "1:7: error: Missing '=' after set a"),
        ("set a! = 1", "1:5: error: Variable name 'a!' of set is invalid; 1 to 63 letters, digits and '_'"),
        ("set a = 1 2", "1:11: warning: '2' is ignored: a variable holds one word"),
        (
            "set a = $no",
            "1:9: error: Variable no is undefined in the environment, which is where 'set' looks",
        ),
        ("setenv XRDX = 1", "1:15: error: Setenv variable XRDX may not start with 'XRD'."),
        ("setenv A = $no", "1:12: error: Variable no is undefined"),
        ("x y $no", "1:5: error: Variable no is undefined"),
        ("x ${no", "1:3: error: Variable ${no is malformed"),
    ] {
        assert_eq!(run(text).1, [format!("main:{problem}")], "{text}");
    }
    assert!(run("setenv XRDCLS3_A = 1").1.is_empty());
    assert!(run(&format!("set {} = 1", "a".repeat(63))).1.is_empty());
    assert_eq!(run(&format!("set {} = 1", "a".repeat(64))).1.len(), 1);
}

#[test]
fn some_directives_are_not_substituted() {
    assert_eq!(accepted("ofs.notifymsg create $TID\n"), ["ofs.notifymsg create $TID"]);
}

#[test]
fn continue_reads_a_file_instead_of_the_rest() {
    let source = MemorySource::new().with("main", "a\ncontinue /b\nc\n").with("/b", "set x = 1\nb $x\n");
    let (statements, _, problems) = run_from(&source);
    assert_eq!(statements, ["a", "b 1"]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("main:3:1: warning: lines after 'continue' are not read"));
}

#[test]
fn continue_reads_the_selected_files_of_a_directory() {
    let directory = |main: &str| {
        run_from(
            &MemorySource::new()
                .with("main", main)
                .with("/d/b.cfg", "b")
                .with("/d/a.conf", "a")
                .with("/d/.hidden.cfg", "no")
                .with("/d/c.cfg.rpmsave", "no")
                .with("/d/c.cfg~", "no")
                .with("/d/run.cfg", "no")
                .executable("/d/run.cfg")
                .with("/d/sub/x.cfg", "no"),
        )
        .0
    };
    assert_eq!(directory("continue /d/"), ["a", "b"]);
    assert_eq!(directory("continue /d *.cfg"), ["b"]);
    assert_eq!(directory("continue /d *.cfg *.rpmsave"), ["b", "no"]);
    assert_eq!(directory("continue /d if exec cmsd\nz"), ["z"]);
}

#[test]
fn continue_allows_a_missing_file_only_with_a_question_mark() {
    assert_eq!(accepted("continue ?/nope\na\n"), ["a"]);
    assert_eq!(
        run("continue /nope\n").1,
        ["main:1:10: error: Unable to open /nope; no such file or directory"]
    );
    assert_eq!(run("continue\n").1, ["main:1:1: error: Path missing after 'continue'"]);
}

#[test]
fn continue_cannot_form_a_cycle() {
    let source = MemorySource::new().with("main", "a\ncontinue /b\n").with("/b", "continue main\n");
    let (statements, _, problems) = run_from(&source);
    assert_eq!(statements, ["a"]);
    assert_eq!(
        problems,
        [
            "/b:1:10: error: 'continue' leads back to main, which has been read already; each file can be read once"
        ]
    );
}

#[test]
fn a_missing_first_file_is_an_error() {
    let (_, _, problems) = run_from(&MemorySource::new());
    assert_eq!(problems, ["command line: error: Unable to open main; no such file or directory"]);
}
