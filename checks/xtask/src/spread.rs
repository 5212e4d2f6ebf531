//! Rule `spread`: the methods of a type are in few files.
//!
//! A type whose methods are in many files has more than one job, and each of these files reaches all
//! of its state. A size limit of files alone would reward such a split.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Modules;
use crate::tree::TidyFinding;

const RULE: &str = "spread";

/// Maximum number of files with methods of one type, tests excluded. Implementations of traits do
/// not count.
const FILES_MAX: usize = 3;

pub(crate) fn check(modules: &Modules) -> Vec<TidyFinding> {
    let mut files: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for module in modules.iter().filter(|module| !module.test_only) {
        for name in types_with_methods(&module.syntax.items) {
            files.entry((package(&module.path), name)).or_default().insert(&module.path);
        }
    }
    let spread = files.iter().filter(|(_, files)| files.len() > FILES_MAX);
    let finding = |((_, name), files): (&(&str, String), &BTreeSet<&str>)| {
        let place = files.first().copied().unwrap_or_default();
        let message = format!(
            "the methods of {name} are in {} files, at most {FILES_MAX}; make objects with one job each",
            files.len()
        );
        TidyFinding::new(place, 1, RULE, message)
    };
    spread.map(finding).collect()
}

/// Returns the directory of the package of a file: types of different packages may share a name.
fn package(path: &str) -> &str {
    path.find("/src/").and_then(|end| path.get(..end)).unwrap_or(path)
}

/// Returns the types for which a file defines methods at its top level.
fn types_with_methods(items: &[syn::Item]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| match item {
        syn::Item::Impl(item) if item.trait_.is_none() => match &*item.self_ty {
            syn::Type::Path(named) => named.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::SourceTree;

    fn findings(package: &str, parts: &[&str]) -> Vec<TidyFinding> {
        let names = ["w", "x", "y", "z"];
        let manifest = (format!("crates/{package}/Cargo.toml"), format!("[package]\nname = \"{package}\"\n"));
        let mut root = String::from("struct One<T>(T);\n");
        let mut files = vec![manifest];
        for (name, part) in names.iter().zip(parts) {
            root += &format!("mod {name};\n");
            files.push((format!("crates/{package}/src/{name}.rs"), (*part).to_owned()));
        }
        files.push((format!("crates/{package}/src/lib.rs"), root));
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Modules::of(&SourceTree::of(&files)))
    }

    #[test]
    fn a_type_with_methods_in_four_files_is_found() {
        let methods = "impl<T> super::One<T> { fn f() {} }";
        assert!(findings("a", &[methods; 3]).is_empty());
        let found = findings("a", &[methods; 4]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("the methods of One are in 4 files"), "{}", found[0].message);
    }

    #[test]
    fn traits_do_not_count() {
        let methods = "impl<T> super::One<T> { fn f() {} }";
        assert!(findings("a", &[methods, methods, methods, "impl Drop for super::One<u8> {}"]).is_empty());
    }
}
