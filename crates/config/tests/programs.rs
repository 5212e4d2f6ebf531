//! Tests of the directives whose programs a server executes.

use config::*;

/// Directives in force whose grammar mentions a program that the server does not execute.
const NOT_EXECUTED: [&str; 1] = ["xrootd.chksum"];

fn load_text(text: &str) -> Loaded {
    let evaluation = Evaluation { program: "xrootd".to_owned(), ..Evaluation::default() };
    let request = ConfigInput { file: Some("f".to_owned()), evaluation, ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn programs(text: &str) -> Vec<&'static str> {
    let loaded = load_text(text);
    assert!(loaded.report.is_ok(), "{text}: {}", loaded.report);
    program_directives(&loaded.effective).map(|directive| directive.names[0]).collect()
}

/// A directive that is forgotten would take `sudo` from its programs under a server that root starts.
#[test]
fn each_directive_in_force_with_a_program_declares_it() {
    let mentions = |directive: &Directive| {
        let mut words = directive.grammar.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| ["pgm", "program", "command"].contains(&word)) || directive.help.contains("Program ")
    };
    let mut declared = Vec::new();
    for directive in every_directive() {
        let name = directive.names[0];
        if directive.standing == Standing::InForce && !NOT_EXECUTED.contains(&name) {
            assert_eq!(directive.names_program(), mentions(directive), "{name}");
            declared.extend(directive.names_program().then_some(name));
        } else {
            assert!(!directive.names_program(), "{name} executes nothing");
        }
    }
    declared.sort_unstable();
    for name in ["cms.fsxeq", "cms.perf", "ofs.tpc"] {
        assert!(declared.contains(&name), "{declared:?}");
    }
}

#[test]
fn the_programs_of_a_configuration_are_found() {
    for (text, expected) in [
        ("", &[][..]),
        ("ofs.tpc ttl 60 70", &[]),
        ("ofs.tpc pgm /usr/bin/xrdcp", &["ofs.tpc"]),
        ("ofs.tpc pgm /usr/bin/xrdcp\nofs.tpc logok", &["ofs.tpc"]),
        ("cms.perf int 1m pgm /usr/bin/load 30", &["cms.perf"]),
        ("if exec cmsd\ncms.perf pgm /usr/bin/load\nfi", &["cms.perf"]),
        ("cms.fsxeq rm mv /usr/bin/remove", &["cms.fsxeq"]),
        ("cms.fsxeq rm /usr/bin/remove\nofs.tpc pgm /usr/bin/xrdcp", &["ofs.tpc", "cms.fsxeq"]),
        ("xrootd.chksum adler32 /usr/bin/checksum", &[]),
        ("xrootd.seclib default\nsec.protocol unix\nsec.entityprogram /m a", &["sec.entityprogram"]),
    ] {
        assert_eq!(programs(text), expected, "{text}");
    }
    for directive in every_directive().filter(|directive| directive.names_program()) {
        let name = directive.names[0];
        // The example of this one has no program.
        if name != "ofs.tpc" {
            let login =
                if name.starts_with("sec.") { "xrootd.seclib default\nsec.protocol unix\n" } else { "" };
            assert_eq!(programs(&format!("{login}{name} {}", directive.example)), [name]);
        }
    }
}
