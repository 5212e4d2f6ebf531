//! Rule `dead`: unused files and broken links.
//!
//! It finds source files that no target reaches, documents that no page links to, Python files that
//! no test imports and no program starts, and links without a target. The compiler and the test
//! runners ignore such files silently.

use std::collections::BTreeSet;

use crate::modules::Modules;
use crate::tree::{SourceTree, TidyFinding, join, parent};

const RULE: &str = "dead";

/// Pages at which a reader starts.
const FRONT_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

pub(crate) fn check(tree: &SourceTree, modules: &Modules) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, _) in tree.ending(".rs") {
        if !modules.contains(path) {
            findings.push(TidyFinding::new(path, 1, RULE, "no target of the workspace reaches this file"));
        }
    }
    documents(tree, &mut findings);
    python(tree, &mut findings);
    findings
}

fn documents(tree: &SourceTree, findings: &mut Vec<TidyFinding>) {
    let mut open: Vec<&str> = FRONT_PAGES.iter().copied().filter(|page| tree.contains(page)).collect();
    let mut linked: BTreeSet<String> = open.iter().map(|page| (*page).to_owned()).collect();
    let mut next = Vec::new();
    while let Some(page) = open.pop() {
        next.clear();
        for (_, target) in links(tree.text(page).unwrap_or_default()) {
            next.extend(join(parent(page), &target));
        }
        for target in &next {
            if let Some((page, _)) = tree.files().find(|(path, _)| path == target && path.ends_with(".md"))
                && linked.insert(page.to_owned())
            {
                open.push(page);
            }
        }
    }
    for (page, text) in tree.ending(".md") {
        if page.starts_with("docs/") && !linked.contains(page) {
            findings.push(TidyFinding::new(
                page,
                1,
                RULE,
                "no front page links to this document, directly or indirectly",
            ));
        }
        for (line, target) in links(text) {
            let Some(path) = join(parent(page), &target) else { continue };
            let read_by_us =
                ["rs", "toml", "md", "py", "json"].iter().any(|ending| path.ends_with(&format!(".{ending}")));
            if read_by_us && !tree.contains(&path) && !tree.has_directory(&path) {
                findings.push(TidyFinding::new(
                    page,
                    line,
                    RULE,
                    format!("the target of the link `{target}` does not exist"),
                ));
            }
        }
    }
}

/// Returns the targets of `[text](target)` within the tree with their lines, without the part
/// behind `#`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for piece in line.split("](").skip(1) {
            let Some((target, _)) = piece.split_once(')') else { continue };
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

fn python(tree: &SourceTree, findings: &mut Vec<TidyFinding>) {
    for (path, _) in tree.ending(".py") {
        let directory = parent(path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let module = name.trim_end_matches(".py");
        let is_root =
            name.starts_with("test_") || matches!(name, "conftest.py" | "__init__.py" | "__main__.py");
        let imported = || {
            let mut siblings =
                tree.ending(".py").filter(|(other, _)| parent(other) == directory && *other != path);
            siblings.any(|(_, text)| mentions_module(text, module, name))
                || tree.ending(".rs").any(|(other, text)| {
                    other.starts_with(&format!("{directory}/src/")) && text.contains(&format!("/{name}\""))
                })
        };
        if !is_root && !imported() {
            findings.push(TidyFinding::new(path, 1, RULE, "no test or program imports or starts this file"));
        }
    }
}

/// Reports whether a Python text imports a module, or runs its file by its quoted name.
fn mentions_module(text: &str, module: &str, file: &str) -> bool {
    text.contains(&format!("\"{file}\""))
        || text.lines().map(str::trim).any(|line| {
            let mut words = line.split([' ', ',', '.']).filter(|word| !word.is_empty());
            matches!(words.next(), Some("import" | "from")) && words.any(|word| word == module)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let tree = SourceTree::of(files);
        let found = check(&tree, &Modules::of(&tree));
        found.into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn a_source_file_outside_every_target_is_found() {
        let files = [
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", "mod used;"),
            ("crates/a/src/used.rs", ""),
            ("crates/a/src/unused.rs", ""),
        ];
        assert_eq!(dead(&files), [("crates/a/src/unused.rs".to_owned(), 1)]);
    }

    #[test]
    fn a_document_must_be_reachable_from_a_front_page() {
        let files = [
            ("README.md", "see [the guide](docs/guide.md#start)"),
            ("docs/guide.md", "and [more](more.md), [web](https://example.org/x.md)"),
            ("docs/more.md", ""),
            ("docs/lost.md", ""),
        ];
        assert_eq!(dead(&files), [("docs/lost.md".to_owned(), 1)]);
    }

    #[test]
    fn a_link_without_a_target_is_found() {
        assert_eq!(dead(&[("README.md", "\n[x](docs/gone.md)")]), [("README.md".to_owned(), 2)]);
    }

    #[test]
    fn a_python_file_must_be_a_test_or_imported_by_one() {
        let files = [
            ("checks/interop/test_a.py", "from raw import Connection\nrun(\"peer.py\")\n"),
            ("checks/interop/raw.py", ""),
            ("checks/interop/peer.py", ""),
            ("checks/interop/old.py", ""),
            ("checks/bench/Cargo.toml", "[package]\nname = \"bench\"\n"),
            ("checks/bench/src/main.rs", "fn main() {\n    run(\"checks/bench/started.py\");\n}\n"),
            ("checks/bench/started.py", ""),
            ("checks/bench/raw.py", ""),
        ];
        let expected = ["checks/bench/raw.py", "checks/interop/old.py"];
        assert_eq!(dead(&files), expected.map(|path| (path.to_owned(), 1)));
    }
}
