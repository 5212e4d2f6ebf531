//! Fuzz target for configuration files: each is read to its end, each problem has a position.
//!
//! Reading must continue after an error, because an operator needs all problems of a file at once.

use config::{ConfigInput, Evaluation, MemorySource, Origin, Overrides, Severity, Strictness, load};

const FILE: &str = "/etc/xrootd/xrootd.cfg";

/// Checks `data` as the content of a configuration file.
pub fn target(data: &[u8]) {
    // The file may include itself and another file.
    let source =
        MemorySource::new().with(FILE, data).with("/etc/xrootd/config.d/10-more.cfg", b"all.export /more\n");
    let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
    for strictness in [Strictness::Strict, Strictness::Legacy] {
        let request = ConfigInput {
            file: Some(FILE.to_owned()),
            evaluation: Evaluation {
                program: "xrootd".to_owned(),
                instance: None,
                host: "server.example.org".to_owned(),
                environment: [("HOME".to_owned(), "/home/x".to_owned())].into(),
            },
            overrides: Overrides::default(),
            strictness,
        };
        let loaded = load(&request, &source);
        assert_eq!(loaded.report.is_ok(), loaded.report.of(Severity::Error).count() == 0);
        for problem in loaded.report.problems() {
            assert!(!problem.what.is_empty() && !problem.to_string().is_empty());
            if let Origin::File(position) = &problem.origin
                && &*position.file == FILE
            {
                assert!(position.line as usize <= lines, "{problem}: the file has {lines} lines");
            }
        }
    }
}
