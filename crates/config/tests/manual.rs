//! The committed reference equals the generated one, so that a change of a table updates `docs/`.

use std::path::Path;

#[test]
fn the_committed_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let wanted = config::manual();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == wanted,
        "docs/configuration.md is out of date; run: UPDATE_DOCS=1 cargo test -p scalla-config"
    );
}

#[test]
fn table_rows_have_the_right_number_of_columns() {
    let manual = config::manual();
    for line in manual.lines().filter(|line| line.starts_with('|')) {
        let bars = line.replace("\\|", "").matches('|').count();
        assert!(matches!(bars, 3 | 4 | 7), "{bars} bars: {line}");
    }
}

#[test]
fn each_directive_has_its_own_page() {
    for directive in config::every_directive() {
        for name in directive.names {
            let page = config::manual_of(name).unwrap();
            assert!(page.contains(directive.grammar) && page.contains(directive.help), "{name}:\n{page}");
        }
    }
    let page = config::manual_of("http.selfhttps2http").unwrap();
    assert!(page.contains("not in force yet: "), "{page}");
    assert_eq!(config::manual_of("http.nothing"), None);
}
