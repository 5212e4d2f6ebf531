//! Rule `banned`: calls that are refused in some crates or in all of them.
//!
//! | call                                                  | refused                             |
//! |-------------------------------------------------------|-------------------------------------|
//! | `spawn_blocking`                                      | everywhere: a hand-off costs 11 us  |
//! | `todo!`, `unimplemented!`                             | everywhere                          |
//! | `std::fs`, `tokio::fs`, `File::open`, …               | outside of `FILE_ROOMS`             |
//! | `unwrap`, `expect`, `x[i]`, `panic!`, `unreachable!`  | in `CALM_ROOMS`                     |
//! | `thread::sleep`                                       | in tests, except in polling loops   |
//! | `allow(unsafe_code)`                                  | outside of `UNSAFE_ROOMS`           |
//! | `print!`, …, `stdout`, `stderr`, `indicatif`          | in the programs, except `printer`   |
//!
//! All rules except the first two and the one about sleeping concern code outside of tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::arrows::{UNSAFE_ROOMS, room};
use crate::modules::{Module, Modules, is_test};
use crate::tree::TidyFinding;

const RULE: &str = "banned";

/// Crates that may block on files. Storage does so by design, the others at start-up or on the
/// pool, and the client serves no other clients.
const FILE_ROOMS: [&str; 9] =
    ["auth", "storage", "config", "server", "logical", "client", "rawclient", "scalla", "checks"];
/// Crates that read the input of peers and must not panic on it.
const CALM_ROOMS: [&str; 4] = ["auth", "wire", "session", "net"];
const PANICKING_METHODS: [&str; 4] = ["unwrap", "expect", "unwrap_err", "expect_err"];
const PANICKING_MACROS: [&str; 2] = ["panic", "unreachable"];
/// The crate whose commands write to terminals, and the only module that may do so.
const PROGRAMS: &str = "scalla";
const PRINTER: &str = "/printer/";
const PRINTING_MACROS: [&str; 4] = ["print", "println", "eprint", "eprintln"];
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];

pub(crate) fn check(modules: &Modules) -> Vec<TidyFinding> {
    modules.iter().flat_map(check_module).collect()
}

fn check_module(module: &Module) -> Vec<TidyFinding> {
    let room = room(&module.path);
    let mut search = Search {
        path: &module.path,
        in_test: module.test_only,
        calm: CALM_ROOMS.contains(&room),
        files: FILE_ROOMS.contains(&room) || module.path.ends_with("/build.rs"),
        unsafe_allowed: UNSAFE_ROOMS.contains(&room),
        prints: room != PROGRAMS || module.path.contains(PRINTER),
        asks_again: false,
        findings: Vec::new(),
    };
    search.visit_file(&module.syntax);
    search.findings
}

struct Search<'a> {
    path: &'a str,
    in_test: bool,
    calm: bool,
    files: bool,
    unsafe_allowed: bool,
    prints: bool,
    /// Within a loop that ends when a condition holds.
    asks_again: bool,
    findings: Vec<TidyFinding>,
}

impl Search<'_> {
    fn found(&mut self, line: usize, message: impl Into<String>) {
        self.findings.push(TidyFinding::new(self.path, line, RULE, message));
    }

    /// Runs `inside`, marked as test code if the attributes are those of test code.
    fn within(&mut self, attributes: &[syn::Attribute], inside: impl FnOnce(&mut Self)) {
        let before = self.in_test;
        self.in_test = before || is_test(attributes);
        inside(self);
        self.in_test = before;
    }

    /// Checks a name at the end of a path, a method or a token.
    fn name(&mut self, name: &str, line: usize) {
        if name == "spawn_blocking" {
            self.found(line, "`spawn_blocking`: use the bounded pool of the file system");
        }
    }

    fn method(&mut self, name: &str, line: usize) {
        self.name(name, line);
        if !self.prints && !self.in_test && name == "print" {
            self.found(
                line,
                "`print` of an error writes text of a peer unescaped; use `Printer::command_line`",
            );
        }
        if self.calm && !self.in_test && PANICKING_METHODS.contains(&name) {
            self.found(line, format!("`{name}` can panic on input of a peer; return an error"));
        }
    }

    fn segments(&mut self, names: &[String], line: usize) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Some(last) = names.last() {
            self.name(last, line);
        }
        let pair = |a: &str, b: &str| names.windows(2).any(|window| window == [a, b]);
        let is_stream = ["io", "stdio"].iter().any(|of| pair(of, "stdout") || pair(of, "stderr"));
        if !self.prints && !self.in_test && (is_stream || names.first() == Some(&"indicatif")) {
            self.found(
                line,
                format!("`{}`: commands write through `printer`, which escapes", names.join("::")),
            );
        }
        if self.in_test {
            if pair("thread", "sleep") && !self.asks_again {
                self.found(line, "`thread::sleep` in a test; wait for the event instead");
            }
        } else if !self.files {
            let opens = ["open", "create", "create_new", "options"].iter().any(|call| pair("File", call));
            if opens || pair("OpenOptions", "new") || pair("std", "fs") || pair("tokio", "fs") {
                self.found(line, format!("`{}`: blocking file calls belong in storage", names.join("::")));
            }
        }
    }

    fn macro_name(&mut self, name: &str, line: usize) {
        if UNFINISHED_MACROS.contains(&name) {
            self.found(line, format!("`{name}!`: unfinished code is not allowed; implement it or remove it"));
        }
        if !self.prints && !self.in_test && PRINTING_MACROS.contains(&name) {
            self.found(line, format!("`{name}!`: commands write through `printer`, which escapes"));
        }
        if self.calm && !self.in_test && PANICKING_MACROS.contains(&name) {
            self.found(line, format!("`{name}!` in a crate that reads input of peers; return an error"));
        }
    }

    /// Checks the tokens of a macro that are not a list of expressions.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|index| tokens.get(index));
            match token {
                TokenTree::Group(group) => {
                    // `&'a [u8]` is a type: the name of a lifetime follows its quote.
                    let quote = index.checked_sub(2).and_then(|index| tokens.get(index));
                    let lifetime = matches!(quote, Some(TokenTree::Punct(sign)) if sign.as_char() == '\'');
                    let indexes =
                        matches!(before, Some(TokenTree::Ident(_) | TokenTree::Group(_))) && !lifetime;
                    if self.calm && !self.in_test && group.delimiter() == Delimiter::Bracket && indexes {
                        self.found(group.span().start().line, "indexing can panic; use `get`");
                    }
                    self.tokens(group.stream());
                }
                TokenTree::Ident(ident) => {
                    let line = ident.span().start().line;
                    let is = |token: Option<&TokenTree>, sign: char| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
                    let name = ident.to_string();
                    if is(before, '.') {
                        self.method(&name, line);
                    } else if is(tokens.get(index + 1), '!') {
                        self.macro_name(&name, line);
                    } else {
                        self.name(&name, line);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.use_tree(&path.tree, prefix);
                prefix.pop();
            }
            syn::UseTree::Name(name) => self.use_name(&name.ident, prefix),
            syn::UseTree::Rename(rename) => self.use_name(&rename.ident, prefix),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, prefix);
                }
            }
            syn::UseTree::Glob(glob) => {
                let line = glob.span().start().line;
                self.segments(&prefix.clone(), line);
            }
        }
    }

    fn use_name(&mut self, ident: &syn::Ident, prefix: &[String]) {
        let mut names = prefix.to_vec();
        names.push(ident.to_string());
        self.segments(&names, ident.span().start().line);
    }
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        self.within(&node.attrs, |search| visit::visit_item_mod(search, node));
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.within(&node.attrs, |search| visit::visit_item_fn(search, node));
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        self.within(&node.attrs, |search| visit::visit_item_impl(search, node));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.within(&node.attrs, |search| visit::visit_impl_item_fn(search, node));
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        self.within(&node.attrs, |search| search.use_tree(&node.tree, &mut Vec::new()));
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        // Constants are evaluated by the compiler, so a failing index or assertion fails the build
        // and not the server.
        let calm = std::mem::replace(&mut self.calm, false);
        self.within(&node.attrs, |search| visit::visit_item_const(search, node));
        self.calm = calm;
    }

    fn visit_expr_while(&mut self, node: &'ast syn::ExprWhile) {
        let before = std::mem::replace(&mut self.asks_again, true);
        visit::visit_expr_while(self, node);
        self.asks_again = before;
    }

    fn visit_expr_loop(&mut self, node: &'ast syn::ExprLoop) {
        let before = std::mem::replace(&mut self.asks_again, true);
        visit::visit_expr_loop(self, node);
        self.asks_again = before;
    }

    fn visit_attribute(&mut self, node: &'ast syn::Attribute) {
        let allows = node.path().is_ident("allow") || node.path().is_ident("expect");
        if allows && !self.unsafe_allowed && mentions(node, "unsafe_code") {
            self.found(node.span().start().line, "`unsafe` belongs in the crates that make system calls");
        }
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        let names: Vec<String> = node.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.segments(&names, node.span().start().line);
        visit::visit_path(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        self.method(&node.method.to_string(), node.method.span().start().line);
        visit::visit_expr_method_call(self, node);
    }

    fn visit_expr_index(&mut self, node: &'ast syn::ExprIndex) {
        if self.calm && !self.in_test {
            self.found(node.span().start().line, "indexing can panic on input of a peer; use `get`");
        }
        visit::visit_expr_index(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        if let Some(last) = node.path.segments.last() {
            self.macro_name(&last.ident.to_string(), node.span().start().line);
        }
        match node.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated) {
            Ok(arguments) => arguments.iter().for_each(|argument| self.visit_expr(argument)),
            Err(_) => self.tokens(node.tokens.clone()),
        }
    }
}

fn mentions(attribute: &syn::Attribute, name: &str) -> bool {
    attribute.meta.require_list().is_ok_and(|list| {
        list.tokens.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::SourceTree;

    /// Returns the lines of the findings in a library file of a crate.
    fn lines(room: &str, text: &str) -> Vec<usize> {
        let manifest = format!("crates/{room}/Cargo.toml");
        let source = format!("crates/{room}/src/lib.rs");
        let tree = SourceTree::of(&[(&manifest, "[package]\nname = \"x\"\n"), (&source, text)]);
        let modules = Modules::of(&tree);
        assert_eq!(modules.findings, []);
        check(&modules).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn spawn_blocking_is_refused_everywhere() {
        assert_eq!(lines("storage", "fn f() {\n tokio::task::spawn_blocking(|| 1);\n}"), [2]);
        assert_eq!(lines("xroot", "fn f(r: R) {\n r.spawn_blocking(g);\n}"), [2]);
        assert_eq!(lines("xroot", "use tokio::task::{spawn,\n spawn_blocking};"), [2]);
    }

    #[test]
    fn unfinished_code_is_refused_everywhere_even_in_macros() {
        assert_eq!(
            lines("storage", "fn f() {\n todo!()\n}\nfn g() {\n select! { a => unimplemented!() }\n}"),
            [2, 5]
        );
    }

    #[test]
    fn blocking_file_calls_are_refused_outside_of_their_crates() {
        let text = "use std::fs;\nfn f() {\n let _ = std::fs::read(\"x\");\n let _ = File::open(\"x\");\n}";
        assert_eq!(lines("xroot", text), [1, 3, 4]);
        assert_eq!(lines("storage", text), [0; 0]);
        assert_eq!(lines("net", "#[cfg(test)]\nmod tests {\n use std::fs;\n}"), [0; 0]);
        assert_eq!(lines("net", "use std::{io,\n fs::OpenOptions};"), [2]);
    }

    #[test]
    fn panicking_calls_are_refused_in_crates_that_read_input_of_peers() {
        let text = "fn f(a: &[u8]) -> u8 {\n let _ = a.first().unwrap();\n let _ = a.first().expect(\"x\");\n a[0]\n}";
        assert_eq!(lines("wire", text), [2, 3, 4]);
        assert_eq!(lines("logical", text), [0; 0]);
        assert_eq!(lines("session", "fn f() {\n panic!(\"x\")\n}"), [2]);
        assert_eq!(
            lines("net", "fn f(a: &[u8]) {\n println!(\"{}\", a[0]);\n select! { x = y => a[1] }\n}"),
            [2, 3]
        );
    }

    #[test]
    fn brackets_of_tests_constants_types_and_attributes_pass() {
        let text = "#[derive(Debug)]\nstruct S([u8; 4]);\nconst T: [u8; 2] = [1, 2];\nconst U: u8 = T[1];\n\
                    fn f() -> [u8; 2] { [3, 4] }\nfn g() { vec![1]; h(&[1]); }\n\
                    #[cfg(test)]\nmod tests {\n #[test]\n fn t() { super::f()[0].unwrap(); }\n}";
        assert_eq!(lines("wire", text), [0; 0]);
        let generated = "macro_rules! m { () => { fn f<'a>(a: &'a [u8]) -> &'a [u8] {\n a[0]\n} } }";
        assert_eq!(lines("wire", generated), [2]);
        assert_eq!(lines("wire", "#[cfg(not(test))]\nmod real {\n fn f(a: &[u8]) -> u8 { a[0] }\n}"), [3]);
    }

    #[test]
    fn sleeping_in_a_test_is_refused_outside_of_polling_loops() {
        let text = "fn f() { std::thread::sleep(d); }\n#[cfg(test)]\nmod tests {\n fn t() {\n thread::sleep(d);\n }\n}";
        assert_eq!(lines("storage", text), [5]);
        let asks = "#[test]\nfn t() {\n while !ready() {\n thread::sleep(d);\n }\n thread::sleep(d);\n}";
        assert_eq!(lines("storage", asks), [6]);
    }

    #[test]
    fn printing_outside_of_the_printer_is_refused() {
        let text = "use indicatif::ProgressBar;\nfn f() {\n println!(\"x\");\n std::io::stdout().flush();\n io::stderr();\n\
                    e.print();\n rustix::stdio::stdout();\n}\n#[test]\nfn t() {\n println!(\"x\");\n}";
        assert_eq!(lines("scalla", text), [1, 3, 4, 5, 6, 7]);
        assert_eq!(lines("server", text), [0; 0]);
        let tree = SourceTree::of(&[
            ("apps/scalla/Cargo.toml", "[package]\nname = \"x\"\n"),
            ("apps/scalla/src/main.rs", "mod printer;\n"),
            ("apps/scalla/src/printer/mod.rs", text),
        ]);
        assert_eq!(check(&Modules::of(&tree)), []);
    }

    #[test]
    fn unsafe_code_is_refused_outside_of_its_crates() {
        assert_eq!(lines("wire", "#![allow(unsafe_code)]\n"), [1]);
        assert_eq!(lines("net", "#![allow(unsafe_code)]\n"), [0; 0]);
    }
}
