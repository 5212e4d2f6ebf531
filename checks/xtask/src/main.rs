//! `cargo xtask`: checks of the source tree that the compiler and clippy do not make.
//!
//! `cargo xtask tidy [--ran FILE...]` reads the repository and prints each violation of a rule as
//! `file:line: [rule] message`. It exits with 1 if there is one, so that a build can depend on it.
//!
//! | rule          | checks                                                               |
//! |---------------|----------------------------------------------------------------------|
//! | `arrows`      | the dependencies between crates, in every `Cargo.toml`               |
//! | `shape`       | file heads, lengths of files and functions                           |
//! | `banned`      | calls that are refused in some crates or in all of them              |
//! | `dead`        | unused source files and documents, broken links                      |
//! | `conformance` | the tests named in `docs/conformance.md` exist, and passed (`--ran`) |
//! | `names`       | the share of type names that are defined in several files            |
//! | `spread`      | the number of files with methods of one type                         |

mod arrows;
mod banned;
mod conformance;
mod dead;
mod modules;
mod names;
mod shape;
mod spread;
mod tree;

use anyhow::{Context, bail};
use tree::{SourceTree, TidyFinding};

const USAGE: &str = "usage: cargo xtask tidy [--ran FILE...]\n  \
    --ran FILE   output of `cargo test` or `pytest -v`: tests named in docs/conformance.md must have passed there";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("tidy") => tidy(&arguments.collect::<Vec<_>>()),
        _ => bail!("{USAGE}"),
    }
}

/// Runs every rule on the repository in which this program was built.
fn tidy(arguments: &[String]) -> anyhow::Result<()> {
    let ran_files = match arguments.split_first() {
        None => None,
        Some((flag, files)) if flag == "--ran" && !files.is_empty() => Some(files),
        Some(_) => bail!("{USAGE}"),
    };
    let root = tree::root()?;
    let tree = SourceTree::read(&root).with_context(|| format!("reading the tree at {}", root.display()))?;
    let ran = match ran_files {
        None => None,
        Some(files) => {
            let mut outputs = Vec::new();
            for file in files {
                outputs.push(std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?);
            }
            Some(conformance::TestResults::parse(&outputs))
        }
    };
    let findings = check(&tree, ran.as_ref());
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files checked, {} findings", tree.len(), findings.len());
    if findings.is_empty() { Ok(()) } else { std::process::exit(1) }
}

/// Returns all findings, ordered by path and line.
fn check(tree: &SourceTree, ran: Option<&conformance::TestResults>) -> Vec<TidyFinding> {
    let modules = modules::Modules::of(tree);
    let mut findings = modules.findings.clone();
    findings.extend(arrows::check(tree));
    findings.extend(shape::check(tree, &modules));
    findings.extend(banned::check(&modules));
    findings.extend(dead::check(tree, &modules));
    findings.extend(names::check(&modules));
    findings.extend(spread::check(&modules));
    findings.extend(conformance::check(tree, &modules, ran));
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_this_repository_is_read() {
        let tree = SourceTree::read(&tree::root().expect("root")).expect("tree");
        assert!(tree.text("Cargo.toml").is_some());
        assert!(tree.text("checks/xtask/src/main.rs").is_some());
        assert!(tree.files().all(|(path, _)| !path.starts_with("target/") && !path.starts_with(".git/")));
    }
}
