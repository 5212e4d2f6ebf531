//! `cargo xtask`: the tree checks itself.
//!
//! `cargo xtask tidy [--ran FILE...]` walks the repository and prints every breach of its rules as
//! `file:line: [rule] message`; it exits with 1 when there is one. The rules:
//!
//! | module        | what it holds                                                                          |
//! |---------------|----------------------------------------------------------------------------------------|
//! | `arrows`      | which room may depend on which, against every `Cargo.toml`                             |
//! | `shape`       | file heads, lengths of files and functions                                             |
//! | `banned`      | calls that must not stand in a room, or nowhere                                        |
//! | `dead`        | source files no target reaches, documents nobody links, links that lead nowhere        |
//! | `conformance` | `docs/conformance.md` names a test for each row, and the test exists and ran (`--ran`) |
//! | `names`       | type names are not defined in several files                                             |

mod arrows;
mod banned;
mod conformance;
mod dead;
mod modules;
mod names;
mod shape;
mod tree;

use anyhow::{Context, bail};
use tree::{Finding, Tree};

const USAGE: &str = "usage: cargo xtask tidy [--ran FILE...]\n  \
    --ran FILE   output of `cargo test` or `pytest -v`: tests named in docs/conformance.md must have passed there";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("tidy") => tidy(&arguments.collect::<Vec<_>>()),
        _ => bail!("{USAGE}"),
    }
}

/// Runs every rule on the repository this program was built from.
fn tidy(arguments: &[String]) -> anyhow::Result<()> {
    let ran_files = match arguments.split_first() {
        None => None,
        Some((flag, files)) if flag == "--ran" && !files.is_empty() => Some(files),
        Some(_) => bail!("{USAGE}"),
    };
    let root = tree::root()?;
    let tree = Tree::read(&root).with_context(|| format!("reading the tree at {}", root.display()))?;
    let ran = match ran_files {
        None => None,
        Some(files) => {
            let mut outputs = Vec::new();
            for file in files {
                outputs.push(std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?);
            }
            Some(conformance::Ran::parse(&outputs))
        }
    };
    let findings = check(&tree, ran.as_ref());
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files checked, {} findings", tree.len(), findings.len());
    if findings.is_empty() { Ok(()) } else { std::process::exit(1) }
}

/// All findings, ordered by place.
fn check(tree: &Tree, ran: Option<&conformance::Ran>) -> Vec<Finding> {
    let modules = modules::Modules::of(tree);
    let mut findings = modules.findings.clone();
    findings.extend(arrows::check(tree));
    findings.extend(shape::check(tree, &modules));
    findings.extend(banned::check(&modules));
    findings.extend(dead::check(tree, &modules));
    findings.extend(names::check(&modules));
    findings.extend(conformance::check(tree, &modules, ran));
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_can_be_read() {
        let tree = Tree::read(&tree::root().expect("root")).expect("tree");
        assert!(tree.text("Cargo.toml").is_some());
        assert!(tree.text("checks/xtask/src/main.rs").is_some());
        assert!(tree.files().all(|(path, _)| !path.starts_with("target/") && !path.starts_with(".git/")));
    }
}
