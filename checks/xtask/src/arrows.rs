//! Rule `arrows`: the allowed dependencies between the crates of the workspace.
//!
//! A crate may use only the crates in its row. Crates that do not exist yet are in the table as
//! well, so that the direction of their dependencies is decided before their code exists.

use std::collections::BTreeMap;

use crate::tree::{SourceTree, TidyFinding, join, parent};

const RULE: &str = "arrows";

/// Stands for every crate except those above the assembly (`ABOVE`).
const ANY: &str = "*";

/// Crates that no other crate may use: the programs and the crates built on them. Only `checks` may
/// use them.
const ABOVE: [&str; 5] = ["server", "mount", "scalla", "preload", "python"];

/// Each crate and its allowed dependencies. No crate may use `checks`.
const ARROWS: [(&str, &[&str]); 26] = [
    ("base", &[]),
    ("config", &["base"]),
    ("wire", &["base"]),
    ("digest", &[]),
    ("vfs", &["base", "auth"]),
    ("auth", &["base", "config", "wire"]),
    ("cluster", &["base", "config", "wire"]),
    ("session", &["base", "config", "wire", "auth", "vfs"]),
    ("storage", &["base", "config", "digest"]),
    ("logical", &["base", "config", "vfs", "auth", "storage", "digest"]),
    ("namespace", &["base", "config"]),
    ("residency", &["base", "config", "storage", "digest"]),
    ("cache", &["base", "config", "digest", "storage"]),
    ("net", &["base", "config"]),
    ("monitor", &["base", "config", "wire"]),
    ("xroot", &["base", "config", "wire", "digest", "session", "vfs", "net", "monitor"]),
    ("http", &["base", "config", "net", "auth", "vfs", "monitor", "digest"]),
    ("rawclient", &["wire", "auth"]),
    ("client", &["base", "config", "wire", "digest", "auth", "net", "rawclient"]),
    ("proxy", &["base", "config", "auth", "vfs", "client", "cache"]),
    ("mount", &["base", "client"]),
    ("server", &[ANY]),
    ("scalla", &["base", "config", "auth", "cache", "server", "client", "monitor", "rawclient", "mount"]),
    ("preload", &["base", "client"]),
    ("python", &["base", "client"]),
    ("checks", &[ANY]),
];

/// Crates whose tests may use more than the crate itself. They are tested from the outside, so a
/// test needs the real file system or the real protocol on the other side. For all other crates
/// such a need shows that the crate is not as independent as it claims to be.
const DRIVEN: [&str; 3] = ["xroot", "server", "scalla"];

/// Crates that may allow `unsafe_code` (decision 021).
pub(crate) const UNSAFE_ROOMS: [&str; 4] = ["net", "storage", "auth", "preload"];

/// Returns the crate of a path: `crates/wire/src/x.rs` -> `wire`, `apps/scalla/…` -> `scalla`,
/// `checks/…` -> `checks`.
pub(crate) fn room(path: &str) -> &str {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates" | "apps"), Some(name)) => name,
        (Some("checks"), _) => "checks",
        _ => "",
    }
}

fn allowed(room: &str, wanted: &str) -> bool {
    let Some((_, uses)) = ARROWS.iter().find(|(name, _)| *name == room) else { return false };
    if uses.contains(&ANY) {
        return wanted != "checks" && (room == "checks" || !ABOVE.contains(&wanted));
    }
    uses.contains(&wanted)
}

fn known(room: &str) -> bool {
    ARROWS.iter().any(|(name, _)| *name == room)
}

/// Checks every manifest of the tree.
pub(crate) fn check(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let shared = workspace_paths(tree);
    for (path, text) in tree.ending("Cargo.toml") {
        let room = room(path);
        if path == "Cargo.toml" {
            continue;
        }
        if !known(room) {
            findings.push(TidyFinding::new(
                path,
                1,
                RULE,
                format!("crate `{room}` has no row in the dependency table"),
            ));
            continue;
        }
        let manifest: toml::Table = match text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(TidyFinding::new(path, 1, RULE, format!("not a manifest: {error}")));
                continue;
            }
        };
        for (kind, name, value) in dependencies(&manifest) {
            let Some(wanted) = our_room(path, name, value, &shared) else { continue };
            let test_only = kind == "dev-dependencies" && DRIVEN.contains(&room) && wanted != "checks";
            if wanted != room && !test_only && !allowed(room, &wanted) {
                let message = format!("`{room}` must not depend on `{wanted}` ({kind})");
                findings.push(TidyFinding::new(path, line_of(text, kind, name), RULE, message));
            }
        }
    }
    findings
}

/// Returns the crates of the workspace by the names under which it shares them: name -> crate.
fn workspace_paths(tree: &SourceTree) -> BTreeMap<String, String> {
    let Some(Ok(root)) = tree.text("Cargo.toml").map(str::parse::<toml::Table>) else {
        return BTreeMap::new();
    };
    let shared = root.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let Some(shared) = shared.and_then(toml::Value::as_table) else { return BTreeMap::new() };
    shared
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), room(value.get("path")?.as_str()?).to_owned())))
        .collect()
}

/// Returns every dependency of a manifest, including those of `[target.*]`: kind of table, name,
/// value.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, &str, &toml::Value)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let mut tables = vec![manifest];
    tables.extend(targets.into_iter().flat_map(|table| table.values()).filter_map(toml::Value::as_table));
    let mut all = Vec::new();
    for table in tables {
        for kind in KINDS {
            let entries = table.get(kind).and_then(toml::Value::as_table).into_iter().flatten();
            all.extend(entries.map(|(name, value)| (kind, name.as_str(), value)));
        }
    }
    all
}

/// Returns the crate of a dependency; `None` if it is not a crate of this workspace.
fn our_room(
    manifest: &str,
    name: &str,
    value: &toml::Value,
    shared: &BTreeMap<String, String>,
) -> Option<String> {
    if let Some(path) = value.get("path").and_then(toml::Value::as_str) {
        return join(parent(manifest), path).map(|path| room(&format!("{path}/")).to_owned());
    }
    if value.get("workspace").and_then(toml::Value::as_bool) == Some(true) {
        return shared.get(name).cloned();
    }
    None
}

/// Returns the line of `name` below the heading of `kind`, or 1 if it is not found.
fn line_of(text: &str, kind: &str, name: &str) -> usize {
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.trim().strip_prefix('[') {
            inside = heading.trim_end_matches(']').ends_with(kind);
        } else if inside && line.trim_start().starts_with(name) {
            return index + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\n\
        base = { path = \"crates/base\" }\nnet = { path = \"crates/net\" }\nwire = { path = \"crates/wire\" }\n\
        logical = { path = \"crates/logical\" }\nlibc = \"0.2\"\n";

    fn findings(path: &str, manifest: &str) -> Vec<TidyFinding> {
        check(&SourceTree::of(&[("Cargo.toml", ROOT), (path, manifest)]))
    }

    #[test]
    fn a_forbidden_dependency_is_found_with_its_line() {
        let manifest =
            "[package]\nname = \"w\"\n[dependencies]\nbase.workspace = true\nnet.workspace = true\n";
        let found = findings("crates/wire/Cargo.toml", manifest);
        assert_eq!(
            found,
            [TidyFinding::new(
                "crates/wire/Cargo.toml",
                5,
                RULE,
                "`wire` must not depend on `net` (dependencies)"
            )]
        );
    }

    #[test]
    fn allowed_dependencies_and_external_crates_pass() {
        let manifest = "[dependencies]\nbase.workspace = true\nlibc.workspace = true\nserde = \"1\"\n";
        assert_eq!(findings("crates/wire/Cargo.toml", manifest), []);
        assert_eq!(findings("checks/fuzz/Cargo.toml", "[dependencies]\nlogical.workspace = true\n"), []);
        assert_eq!(findings("crates/server/Cargo.toml", "[dependencies]\nlogical.workspace = true\n"), []);
    }

    #[test]
    fn path_and_target_dependencies_are_checked() {
        let by_path = "[dependencies]\nx = { path = \"../logical\" }\n";
        assert_eq!(findings("crates/xroot/Cargo.toml", by_path).len(), 1);
        let by_target = "[target.'cfg(unix)'.dependencies]\nlogical.workspace = true\n";
        assert_eq!(findings("crates/xroot/Cargo.toml", by_target).len(), 1);
    }

    #[test]
    fn only_tests_of_driven_crates_may_use_more() {
        let manifest = "[dev-dependencies]\nlogical.workspace = true\n";
        assert_eq!(findings("crates/wire/Cargo.toml", manifest).len(), 1);
        assert_eq!(findings("crates/xroot/Cargo.toml", manifest), []);
    }

    #[test]
    fn checks_must_not_be_used_and_crates_must_be_known() {
        let manifest = "[dependencies]\nx = { path = \"../../checks/interop\" }\n";
        assert_eq!(findings("crates/server/Cargo.toml", manifest).len(), 1);
        assert_eq!(findings("crates/util/Cargo.toml", "").len(), 1);
    }

    #[test]
    fn planned_crates_have_their_dependencies() {
        assert!(allowed("http", "auth") && !allowed("http", "session"));
        assert!(allowed("server", "cluster") && !allowed("server", "mount"));
        assert!(allowed("python", "client") && !allowed("client", "server"));
    }
}
