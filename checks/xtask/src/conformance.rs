//! Rule `conformance`: each row in `docs/conformance.md` names at least one existing test.
//!
//! The tests are named in backticks. With `--ran`, each of them must also have passed in the
//! recorded run, because a test that is never executed proves nothing.
//!
//! Rust tests are named `crate::module::path::function`, as `cargo test` prints them behind the
//! name of the crate. The crate of an integration test is the name of its file. Python tests are
//! named `checks/interop/test_x.py::test_name`.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::modules::{Module, Modules, is_test};
use crate::tree::{SourceTree, TidyFinding};

const RULE: &str = "conformance";
const PAGE: &str = "docs/conformance.md";

/// All request codes and error codes of the protocol. Each must begin a row of the page, so that
/// none is forgotten.
const REQUEST_CODES: std::ops::RangeInclusive<u16> = 3000..=3032;
const ERROR_CODES: std::ops::RangeInclusive<u16> = 3000..=3035;

/// Names of tests that passed.
#[derive(Default)]
pub(crate) struct TestResults {
    passed: BTreeSet<String>,
}

impl TestResults {
    /// Parses outputs of `cargo test` and `pytest -v`.
    pub(crate) fn parse(outputs: &[String]) -> Self {
        let mut ran = Self::default();
        for output in outputs {
            let mut target = String::new();
            for line in output.lines().map(str::trim) {
                if let Some(binary) = line.strip_prefix("Running ").and_then(binary_name) {
                    target = binary;
                } else if let Some(name) =
                    line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok"))
                {
                    let name = name.trim_end_matches(" - should panic");
                    ran.passed.insert(format!("{target}::{name}"));
                } else if line.contains("PASSED")
                    && let Some(node) = line.split_whitespace().find(|word| word.contains(".py::"))
                {
                    ran.passed.insert(node.split('[').next().unwrap_or(node).to_owned());
                }
            }
        }
        ran
    }
}

/// Returns the name of a test binary: `unittests src/lib.rs (target/debug/deps/wire-0a1b…)` ->
/// `wire`.
fn binary_name(running: &str) -> Option<String> {
    let (_, path) = running.strip_suffix(')')?.rsplit_once('(')?;
    let file = path.rsplit('/').next()?;
    file.rsplit_once('-').map(|(name, _)| name.to_owned())
}

pub(crate) fn check(tree: &SourceTree, modules: &Modules, ran: Option<&TestResults>) -> Vec<TidyFinding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![TidyFinding::new(PAGE, 1, RULE, "this page is missing")];
    };
    let existing = existing(tree, modules);
    let mut findings = Vec::new();
    let mut headed = false;
    for (index, line) in page.lines().enumerate() {
        let line_number = index + 1;
        let Some(row) = line.trim().strip_prefix('|') else {
            headed = false;
            continue;
        };
        // The first row of a table is its heading, the second its delimiter row.
        let is_ruler = row.chars().all(|sign| matches!(sign, '|' | '-' | ':' | ' '));
        if is_ruler || !std::mem::replace(&mut headed, true) {
            continue;
        }
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        if named.is_empty() {
            findings.push(TidyFinding::new(PAGE, line_number, RULE, "this row names no test"));
        }
        for name in named {
            if !existing.contains(name) {
                findings.push(TidyFinding::new(
                    PAGE,
                    line_number,
                    RULE,
                    format!("no test is called `{name}`"),
                ));
            } else if ran.is_some_and(|ran| !ran.passed.contains(name)) {
                findings.push(TidyFinding::new(
                    PAGE,
                    line_number,
                    RULE,
                    format!("`{name}` did not pass in this run"),
                ));
            }
        }
    }
    findings.extend(missing_codes(page));
    findings
}

/// Returns findings for codes that begin no row of the chapters on requests and errors.
fn missing_codes(page: &str) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (chapter, codes) in [("## Requests", REQUEST_CODES), ("## Errors", ERROR_CODES)] {
        let lines = page.lines().skip_while(|line| *line != chapter).skip(1);
        let rows: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
        for code in codes {
            let begins = |row: &&&str| row.trim_start_matches(['|', ' ']).starts_with(&code.to_string());
            if !rows.iter().any(|row| begins(&row)) {
                findings.push(TidyFinding::new(
                    PAGE,
                    1,
                    RULE,
                    format!("no row of `{chapter}` begins with {code}"),
                ));
            }
        }
    }
    findings
}

/// Returns the names of all tests in the tree.
fn existing(tree: &SourceTree, modules: &Modules) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for module in modules.iter() {
        names.extend(tests_of(module));
    }
    for (path, text) in tree.ending(".py") {
        for line in text.lines() {
            let definition = line.trim_start().strip_prefix("def ").and_then(|rest| rest.split_once('('));
            if let Some((name, _)) = definition.filter(|(name, _)| name.starts_with("test_")) {
                names.insert(format!("{path}::{name}"));
            }
        }
    }
    names
}

fn tests_of(module: &Module) -> Vec<String> {
    let mut tests = Tests { prefix: module.name.clone(), names: Vec::new() };
    tests.visit_file(&module.syntax);
    tests.names
}

struct Tests {
    prefix: String,
    names: Vec<String>,
}

impl Tests {
    /// Collects the functions within `proptest! { … }`.
    fn within_macro(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for pair in tokens.windows(2) {
            if let [TokenTree::Ident(keyword), TokenTree::Ident(name)] = pair
                && keyword == "fn"
            {
                self.names.push(format!("{}::{name}", self.prefix));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        let outer = self.prefix.clone();
        self.prefix = format!("{outer}::{}", node.ident);
        visit::visit_item_mod(self, node);
        self.prefix = outer;
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let ignored = node.attrs.iter().any(|attribute| attribute.path().is_ident("ignore"));
        if is_test(&node.attrs) && !ignored {
            self.names.push(format!("{}::{}", self.prefix, node.sig.ident));
        }
    }

    fn visit_item_macro(&mut self, node: &'ast syn::ItemMacro) {
        if node.mac.path.segments.last().is_some_and(|last| last.ident == "proptest") {
            self.within_macro(node.mac.tokens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO: &str = "     Running unittests src/lib.rs (target/debug/deps/wire-0a1b2c)\n\n\
        running 2 tests\ntest read::tests::decodes ... ok\ntest read::tests::broken ... FAILED\n\
             Running tests/vectors.rs (/t/debug/deps/vectors-ffee)\ntest all ... ok\n";
    const PYTEST: &str = "checks/interop/test_cp.py::test_upload[ours-adler 32] PASSED [ 10%]\n\
        [gw1] [ 20%] PASSED checks/interop/test_cp.py::test_download[ours]\n\
        checks/interop/test_cp.py::test_lost[ours] FAILED\n";

    fn tree(page: &str) -> SourceTree {
        SourceTree::of(&[
            ("crates/wire/Cargo.toml", "[package]\nname = \"scalla-wire\"\n[lib]\nname = \"wire\"\n"),
            ("crates/wire/src/lib.rs", "mod read;"),
            (
                "crates/wire/src/read.rs",
                "#[cfg(test)] mod tests { #[test] fn decodes() {} #[test] fn broken() {} fn helper() {} \
                 proptest! { #[test] fn any(x in 0..3) {} } }",
            ),
            ("crates/wire/tests/vectors.rs", "#[test] fn all() {}"),
            ("checks/interop/test_cp.py", "def test_upload(server):\n    pass\ndef test_lost():\n    pass\n"),
            (PAGE, page),
        ])
    }

    /// Returns the findings about rows, without those about codes that a short sample lacks.
    fn messages(page: &str, ran: Option<&TestResults>) -> Vec<(usize, String)> {
        let tree = tree(page);
        let found = check(&tree, &Modules::of(&tree), ran);
        let about_rows = found.into_iter().filter(|finding| !finding.message.contains("begins with"));
        about_rows.map(|finding| (finding.line, finding.message)).collect()
    }

    fn page(test: &str) -> String {
        format!("## Requests\n\n| request | test |\n|---|---|\n| 3013 read | {test} |\n")
    }

    #[test]
    fn outputs_of_both_test_runners_are_parsed() {
        let ran = TestResults::parse(&[CARGO.to_owned(), PYTEST.to_owned()]);
        let expected = [
            "checks/interop/test_cp.py::test_download",
            "checks/interop/test_cp.py::test_upload",
            "vectors::all",
            "wire::read::tests::decodes",
        ];
        assert_eq!(ran.passed.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn named_tests_that_exist_pass() {
        let names = ["wire::read::tests::decodes", "wire::read::tests::any", "vectors::all"];
        for name in names {
            assert_eq!(messages(&page(&format!("`{name}`")), None), [], "{name}");
        }
        assert_eq!(messages(&page("`checks/interop/test_cp.py::test_upload`"), None), []);
    }

    #[test]
    fn rows_without_tests_and_missing_tests_are_found() {
        assert_eq!(messages(&page("none yet"), None), [(5, "this row names no test".to_owned())]);
        let gone = messages(&page("`wire::read::tests::helper`, `vectors::all`"), None);
        assert_eq!(gone, [(5, "no test is called `wire::read::tests::helper`".to_owned())]);
    }

    #[test]
    fn a_named_test_must_have_passed_in_the_run() {
        let ran = TestResults::parse(&[CARGO.to_owned(), PYTEST.to_owned()]);
        assert_eq!(messages(&page("`wire::read::tests::decodes`"), Some(&ran)), []);
        assert_eq!(messages(&page("`wire::read::tests::broken`"), Some(&ran)).len(), 1);
        assert_eq!(messages(&page("`checks/interop/test_cp.py::test_lost`"), Some(&ran)).len(), 1);
    }

    #[test]
    fn a_code_without_a_row_and_a_missing_page_are_found() {
        let tree = tree(&page("`vectors::all`"));
        let found = check(&tree, &Modules::of(&tree), None);
        let missing = |text: &str| found.iter().any(|finding| finding.message == text);
        assert!(!missing("no row of `## Requests` begins with 3013"));
        assert!(missing("no row of `## Requests` begins with 3012"));
        assert!(missing("no row of `## Errors` begins with 3035"));
        let none = SourceTree::of(&[]);
        assert_eq!(check(&none, &Modules::of(&none), None).len(), 1);
    }
}
