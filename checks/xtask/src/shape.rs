//! Rule `shape`: each source file has a head, and files and functions have a maximum length.
//!
//! The limits exist so that a file or function can be read at once.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::modules::Modules;
use crate::tree::{SourceTree, TidyFinding};

const RULE: &str = "shape";
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// Prefix of a comment directly above a function that exempts it from the limit. The reason must
/// follow.
const EXCUSE: &str = "// tidy: long because ";

pub(crate) fn check(tree: &SourceTree, modules: &Modules) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        if !text.trim_start().starts_with("//!") {
            findings.push(TidyFinding::new(
                path,
                1,
                RULE,
                "lacks a file head (`//!`) that states its purpose",
            ));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines, at most {FILE_LINES_MAX}: split it by responsibility");
            findings.push(TidyFinding::new(path, FILE_LINES_MAX, RULE, message));
        }
    }
    for module in modules.iter() {
        let lines: Vec<&str> = tree.text(&module.path).unwrap_or_default().lines().collect();
        let mut functions = Functions { path: &module.path, lines: &lines, findings: &mut findings };
        functions.visit_file(&module.syntax);
    }
    findings
}

struct Functions<'a> {
    path: &'a str,
    lines: &'a [&'a str],
    findings: &'a mut Vec<TidyFinding>,
}

impl Functions<'_> {
    /// Checks the length of a function. `whole` is the first line of its attributes and
    /// documentation, `signature` the line of its signature.
    fn measure(&mut self, name: &syn::Ident, whole: usize, signature: usize, end: usize) {
        let length = end + 1 - signature;
        if length > FUNCTION_LINES_MAX && !self.excused(whole) && !self.excused(signature) {
            let message = format!("`{name}` has {length} lines, at most {FUNCTION_LINES_MAX}");
            self.findings.push(TidyFinding::new(self.path, signature, RULE, message));
        }
    }

    /// Reports whether the comment lines directly above `line` (counted from 1) give a reason.
    fn excused(&self, line: usize) -> bool {
        let above = self.lines.iter().take(line.saturating_sub(1)).rev();
        above
            .map(|text| text.trim())
            .take_while(|text| text.starts_with("//") || text.starts_with("#["))
            .any(|text| text.strip_prefix(EXCUSE).is_some_and(|reason| reason.trim().len() >= 8))
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let signature = node.sig.span().start().line;
        self.measure(&node.sig.ident, node.span().start().line, signature, node.span().end().line);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        let signature = node.sig.span().start().line;
        self.measure(&node.sig.ident, node.span().start().line, signature, node.span().end().line);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        let signature = node.sig.span().start().line;
        self.measure(&node.sig.ident, node.span().start().line, signature, node.span().end().line);
        visit::visit_trait_item_fn(self, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<TidyFinding> {
        let tree = SourceTree::of(&[
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", text),
        ]);
        check(&tree, &Modules::of(&tree))
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    let _ = 1;\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_without_a_head_is_found() {
        assert_eq!(findings("\n//! Says it.\nfn f() {}\n"), []);
        let found = findings("// not a head\nfn f() {}\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 1);
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        let file = |lines: usize| format!("//! Head.\n{}", "// x\n".repeat(lines - 1));
        assert_eq!(findings(&file(FILE_LINES_MAX)), []);
        assert_eq!(findings(&file(FILE_LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn a_function_over_the_limit_is_found() {
        assert_eq!(findings(&format!("//! Head.\n{}", function(FUNCTION_LINES_MAX))), []);
        let found = findings(&format!("//! Head.\n/// Doc.\n{}", function(FUNCTION_LINES_MAX + 1)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        let method = format!("//! Head.\nstruct S;\nimpl S {{\n{}}}\n", function(FUNCTION_LINES_MAX + 1));
        assert_eq!(findings(&method).len(), 1);
    }

    #[test]
    fn only_a_comment_with_a_reason_exempts_a_function() {
        let long = function(FUNCTION_LINES_MAX + 1);
        let with = |comment: &str| format!("//! Head.\n{comment}\n#[inline]\n{long}");
        assert_eq!(findings(&with("// tidy: long because it is one table of 80 rows")), []);
        assert_eq!(findings(&with("// tidy: long because x")).len(), 1);
        assert_eq!(findings(&with("// tidy: long because it is one table of 80 rows\n")).len(), 1);
    }
}
