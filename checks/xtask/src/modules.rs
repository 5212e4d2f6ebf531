//! The source files that the targets of the workspace reach, parsed.
//!
//! It starts at every target of every manifest and follows `mod` declarations as the compiler does
//! (`x.rs`, `x/mod.rs`, `#[path]`). It records which files are compiled only for tests, because
//! other rules are less strict for those.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::tree::{SourceTree, TidyFinding, join, parent};

const RULE: &str = "modules";

/// A parsed source file.
pub(crate) struct Module {
    /// Path in the tree.
    pub(crate) path: String,
    /// `target::path::of::module`, with the name of the target as in `use` (`wire`, not
    /// `scalla-wire`).
    pub(crate) name: String,
    /// The file is compiled only for tests.
    pub(crate) test_only: bool,
    pub(crate) syntax: syn::File,
}

/// All source files that a target reaches.
#[derive(Default)]
pub(crate) struct Modules {
    modules: BTreeMap<String, Module>,
    /// The root files of the targets.
    roots: BTreeSet<String>,
    /// Files that do not parse, and `mod` declarations without a file.
    pub(crate) findings: Vec<TidyFinding>,
}

impl Modules {
    pub(crate) fn of(tree: &SourceTree) -> Self {
        let manifests = tree.ending("Cargo.toml");
        let targets: Vec<_> = manifests.flat_map(|(path, text)| targets(tree, path, text)).collect();
        let roots = targets.iter().map(|target| target.root.clone()).collect();
        let mut modules = Self { roots, ..Self::default() };
        for target in targets {
            modules.enter(tree, &target.root, target.name, target.test_only, parent(&target.root));
        }
        modules
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.modules.contains_key(path)
    }

    /// Adds a file and the modules that it declares. `directory` is the directory of the files of its
    /// modules.
    fn enter(&mut self, tree: &SourceTree, path: &str, name: String, test_only: bool, directory: &str) {
        if let Some(known) = self.modules.get_mut(path) {
            // The file is reached a second time. If it is not only compiled for tests, the stricter
            // rules apply.
            known.test_only &= test_only;
            return;
        }
        let Some(text) = tree.text(path) else { return };
        let syntax = match syn::parse_file(text) {
            Ok(syntax) => syntax,
            Err(error) => {
                let line = error.span().start().line;
                self.findings.push(TidyFinding::new(path, line, RULE, format!("does not parse: {error}")));
                return;
            }
        };
        let mut declared = Declared::default();
        declared.collect(&syntax.items, (directory, parent(path)), &name, test_only);
        for include in included(&syntax) {
            if let Some(file) = join(parent(path), &include) {
                let name = name.clone();
                declared.files.push(ModuleDeclaration {
                    candidates: vec![file],
                    name,
                    test_only,
                    by_path: false,
                    line: 0,
                });
            }
        }
        let module = Module { path: path.to_owned(), name, test_only, syntax };
        self.modules.insert(path.to_owned(), module);
        for child in declared.files {
            match child.candidates.iter().find(|candidate| tree.contains(candidate)) {
                // The root file of a target keeps the name of that target.
                Some(file) if self.roots.contains(file) => {}
                Some(file) => {
                    let directory = if child.by_path || file.ends_with("/mod.rs") {
                        parent(file).to_owned()
                    } else {
                        file.trim_end_matches(".rs").to_owned()
                    };
                    self.enter(tree, file, child.name, child.test_only, &directory);
                }
                None if child.line == 0 => {}
                None => {
                    let message = format!("no file for this module: {}", child.candidates.join(" or "));
                    self.findings.push(TidyFinding::new(path, child.line, RULE, message));
                }
            }
        }
    }
}

/// A declared module with a file of its own.
struct ModuleDeclaration {
    candidates: Vec<String>,
    name: String,
    test_only: bool,
    /// Declared with `#[path]`: the files of its own modules are in the same directory.
    by_path: bool,
    line: usize,
}

#[derive(Default)]
struct Declared {
    files: Vec<ModuleDeclaration>,
}

impl Declared {
    /// Adds the modules that `items` declare. The directories are that of ordinary modules, and that
    /// to which `#[path]` refers.
    fn collect(&mut self, items: &[syn::Item], directories: (&str, &str), name: &str, test_only: bool) {
        let (directory, path_directory) = directories;
        for item in items {
            let syn::Item::Mod(module) = item else { continue };
            let ident = module.ident.to_string();
            let inner_name = format!("{name}::{ident}");
            let inner_test = test_only || is_test(&module.attrs);
            match &module.content {
                Some((_, items)) => {
                    let inner = format!("{directory}/{ident}");
                    self.collect(items, (&inner, &inner), &inner_name, inner_test)
                }
                None => {
                    let path = path_attribute(&module.attrs);
                    let by_path = path.is_some();
                    let candidates = match path {
                        Some(path) => join(path_directory, &path).into_iter().collect(),
                        None => {
                            vec![format!("{directory}/{ident}.rs"), format!("{directory}/{ident}/mod.rs")]
                        }
                    };
                    let line = module.ident.span().start().line;
                    let (name, test_only) = (inner_name, inner_test);
                    self.files.push(ModuleDeclaration { candidates, name, test_only, by_path, line });
                }
            }
        }
    }
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        match &attribute.meta.require_name_value().ok()?.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        }
    })
}

/// Returns the names of files included with `include!("…")`.
fn included(file: &syn::File) -> Vec<String> {
    struct Includes(Vec<String>);
    impl<'ast> Visit<'ast> for Includes {
        fn visit_macro(&mut self, node: &'ast syn::Macro) {
            if node.path.is_ident("include")
                && let Ok(name) = node.parse_body::<syn::LitStr>()
            {
                self.0.push(name.value());
            }
            visit::visit_macro(self, node);
        }
    }
    let mut includes = Includes(Vec::new());
    includes.visit_file(file);
    includes.0
}

/// Reports whether an item with these attributes is compiled only for tests: `#[test]`,
/// `#[tokio::test]`, `#[cfg(test)]` and its combinations, but not `#[cfg(not(test))]`.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.segments.last().is_some_and(|last| last.ident == "test") {
            return true;
        }
        path.is_ident("cfg") && attribute.meta.require_list().is_ok_and(|list| asks_for_test(&list.tokens))
    })
}

/// Reports whether `test` occurs in a condition, but not below a `not`.
fn asks_for_test(condition: &proc_macro2::TokenStream) -> bool {
    let mut negated = false;
    for token in condition.clone() {
        match token {
            proc_macro2::TokenTree::Ident(ident) => {
                if ident == "test" {
                    return true;
                }
                negated = ident == "not";
            }
            proc_macro2::TokenTree::Group(group) => {
                if !negated && asks_for_test(&group.stream()) {
                    return true;
                }
                negated = false;
            }
            _ => negated = false,
        }
    }
    false
}

/// The root file of a target.
struct RootFile {
    root: String,
    name: String,
    test_only: bool,
}

/// Returns the targets of a manifest: the explicit ones, and those that Cargo finds by their
/// location.
fn targets(tree: &SourceTree, manifest: &str, text: &str) -> Vec<RootFile> {
    let directory = parent(manifest);
    let Ok(manifest) = text.parse::<toml::Table>() else { return Vec::new() };
    let Some(package) = manifest.get("package").and_then(|package| package.get("name")?.as_str()) else {
        return Vec::new();
    };
    let at = |relative: &str| join(directory, relative).unwrap_or_default();
    let lib = manifest.get("lib");
    let lib_field = |field: &str| lib.and_then(|lib| lib.get(field)?.as_str());
    let lib_name = lib_field("name").unwrap_or(package).replace('-', "_");
    let mut found = vec![
        RootFile { root: at(lib_field("path").unwrap_or("src/lib.rs")), name: lib_name, test_only: false },
        RootFile { root: at("src/main.rs"), name: package.replace('-', "_"), test_only: false },
        RootFile { root: at("build.rs"), name: "build".to_owned(), test_only: false },
    ];
    for (kind, test_only) in [("bin", false), ("example", false), ("test", true), ("bench", true)] {
        let listed = manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten();
        for target in listed {
            let name = target.get("name").and_then(toml::Value::as_str).unwrap_or(package).replace('-', "_");
            if let Some(path) = target.get("path").and_then(toml::Value::as_str) {
                found.push(RootFile { root: at(path), name, test_only });
            }
        }
        let place = match kind {
            "bin" => "src/bin".to_owned(),
            "bench" => "benches".to_owned(),
            kind => format!("{kind}s"),
        };
        let place = format!("{}/", at(&place));
        for (path, _) in tree.ending(".rs") {
            let Some(rest) = path.strip_prefix(&place) else { continue };
            let name = match rest.split_once('/') {
                None => rest.trim_end_matches(".rs"),
                Some((name, "main.rs")) => name,
                Some(_) => continue,
            };
            found.push(RootFile { root: path.to_owned(), name: name.replace('-', "_"), test_only });
        }
    }
    found.retain(|target| tree.contains(&target.root));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"scalla-a\"\n[lib]\nname = \"a\"\n";

    fn summary(files: &[(&str, &str)]) -> Vec<(String, String, bool)> {
        let modules = Modules::of(&SourceTree::of(files));
        assert_eq!(modules.findings, []);
        modules.iter().map(|module| (module.path.clone(), module.name.clone(), module.test_only)).collect()
    }

    #[test]
    fn modules_are_followed_as_the_compiler_does() {
        let found = summary(&[
            ("crates/a/Cargo.toml", MANIFEST),
            (
                "crates/a/src/lib.rs",
                "mod b; mod c { mod d; } #[cfg(test)] mod t; #[path = \"odd.rs\"] mod e;",
            ),
            ("crates/a/src/b.rs", "mod inner; #[path = \"shared.rs\"] mod s;"),
            ("crates/a/src/b/inner.rs", ""),
            ("crates/a/src/c/d/mod.rs", ""),
            ("crates/a/src/odd.rs", ""),
            ("crates/a/src/shared.rs", ""),
            ("crates/a/src/t.rs", ""),
            ("crates/a/tests/whole.rs", ""),
        ]);
        let expected = [
            ("crates/a/src/b.rs", "a::b", false),
            ("crates/a/src/b/inner.rs", "a::b::inner", false),
            ("crates/a/src/c/d/mod.rs", "a::c::d", false),
            ("crates/a/src/lib.rs", "a", false),
            ("crates/a/src/odd.rs", "a::e", false),
            ("crates/a/src/shared.rs", "a::b::s", false),
            ("crates/a/src/t.rs", "a::t", true),
            ("crates/a/tests/whole.rs", "whole", true),
        ];
        assert_eq!(found, expected.map(|(path, name, test)| (path.to_owned(), name.to_owned(), test)));
    }

    #[test]
    fn a_test_that_is_included_by_another_one_keeps_its_name() {
        let found = summary(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", ""),
            (
                "crates/a/tests/again.rs",
                "#[path = \"whole.rs\"] mod whole; #[path = \"parts/odd.rs\"] mod odd;",
            ),
            ("crates/a/tests/parts/odd.rs", "mod even;"),
            ("crates/a/tests/parts/even.rs", ""),
            ("crates/a/tests/whole.rs", "mod support;"),
            ("crates/a/tests/support/mod.rs", ""),
        ]);
        let names: Vec<_> = found.iter().map(|(_, name, _)| name.as_str()).collect();
        let expected = ["a", "again", "again::odd::even", "again::odd", "whole::support", "whole"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_module_without_a_file_and_a_file_that_does_not_parse_are_found() {
        let files = [("crates/a/Cargo.toml", MANIFEST), ("crates/a/src/lib.rs", "\nmod gone;\n")];
        let modules = Modules::of(&SourceTree::of(&files));
        assert_eq!(modules.findings.len(), 1);
        assert_eq!((modules.findings[0].line, modules.findings[0].path.as_str()), (2, "crates/a/src/lib.rs"));
        let files = [("crates/a/Cargo.toml", MANIFEST), ("crates/a/src/lib.rs", "fn (")];
        assert_eq!(Modules::of(&SourceTree::of(&files)).findings.len(), 1);
    }

    #[test]
    fn test_conditions_are_distinguished_from_their_negation() {
        let condition = |text: &str| asks_for_test(&text.parse().expect("tokens"));
        assert!(
            condition("test") && condition("any(test, feature = \"x\")") && condition("all(unix, any(test))")
        );
        assert!(
            !condition("not(test)") && !condition("feature = \"test\"") && !condition("all(unix, not(test))")
        );
    }
}
