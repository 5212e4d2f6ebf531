//! Rule `names`: only a small share of the type names may be defined in more than one file.
//!
//! A name of several types cannot be searched for, and a reader confuses the types where they are
//! used together. Names that are always used with their module (`config::Error`) do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Modules;
use crate::tree::TidyFinding;

const RULE: &str = "names";

/// Maximum percentage of type names that are defined in more than one file.
const REPEATED_PERCENT_MAX: usize = 1;

/// Names that are conventionally repeated and used with their module.
const WITH_MODULE: [&str; 6] = ["Builder", "Config", "Error", "Options", "Result", "Settings"];

/// Number of names in the message of a finding, the most repeated ones first.
const LISTED: usize = 12;

pub(crate) fn check(modules: &Modules) -> Vec<TidyFinding> {
    check_share(modules, REPEATED_PERCENT_MAX)
}

fn check_share(modules: &Modules, percent_max: usize) -> Vec<TidyFinding> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for module in modules.iter().filter(|module| !module.test_only) {
        for name in type_names(&module.syntax.items) {
            files.entry(name).or_default().insert(&module.path);
        }
    }
    files.retain(|name, _| !WITH_MODULE.contains(&name.as_str()));
    let mut repeated: Vec<_> = files.iter().filter(|(_, files)| files.len() > 1).collect();
    repeated.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
    if repeated.len() * 100 <= percent_max * files.len() {
        return Vec::new();
    }
    let worst: Vec<_> =
        repeated.iter().take(LISTED).map(|(name, files)| format!("{name} ({} files)", files.len())).collect();
    let message = format!(
        "{} of {} type names are defined in more than one file, at most {percent_max} %; rename {}",
        repeated.len(),
        files.len(),
        worst.join(", ")
    );
    let place = repeated.first().and_then(|(_, files)| files.first()).copied().unwrap_or_default();
    vec![TidyFinding::new(place, 1, RULE, message)]
}

/// Returns the names of the types that a file defines at its top level.
fn type_names(items: &[syn::Item]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| match item {
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Enum(item) => Some(item.ident.to_string()),
        syn::Item::Trait(item) => Some(item.ident.to_string()),
        syn::Item::Union(item) => Some(item.ident.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::SourceTree;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");

    fn findings(files: &[(&str, &str)], percent_max: usize) -> Vec<TidyFinding> {
        let files: Vec<_> = std::iter::once(MANIFEST).chain(files.iter().copied()).collect();
        check_share(&Modules::of(&SourceTree::of(&files)), percent_max)
    }

    #[test]
    fn a_repeated_name_is_found_with_its_share() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\nstruct One;\nenum Two {}"),
            ("crates/a/src/x.rs", "struct One;\ntrait Three {}"),
        ];
        let found = findings(&files, 33);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("1 of 3 type names"), "{}", found[0].message);
        assert!(found[0].message.contains("One (2 files)"), "{}", found[0].message);
        assert!(findings(&files, 34).is_empty());
    }

    #[test]
    fn tests_and_names_used_with_their_module_do_not_count() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\n#[cfg(test)]\nmod y;\nstruct Error;\nstruct One;"),
            ("crates/a/src/x.rs", "struct Error;"),
            ("crates/a/src/y.rs", "struct One;"),
        ];
        assert!(findings(&files, 0).is_empty());
    }
}
