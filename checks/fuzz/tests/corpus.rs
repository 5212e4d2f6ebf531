//! Every target holds on its corpus.

#[test]
fn every_target_holds_on_its_corpus() {
    for (name, target) in fuzz::TARGETS {
        let seeds = fuzz::seeds::of(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert!(seeds.len() >= 5, "{name} has {} seeds only", seeds.len());
        for seed in &seeds {
            let held = std::panic::catch_unwind(|| target(seed));
            assert!(held.is_ok(), "{name} does not hold on {}", seed.escape_ascii());
        }
    }
}

/// A real message cut short or with a damaged byte is what a fuzzer tries first; so the ordinary tests do.
#[test]
fn every_target_holds_on_damaged_seeds() {
    for (name, target) in fuzz::TARGETS {
        let seeds = fuzz::seeds::of(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        for (index, seed) in seeds.iter().enumerate().filter(|(_, seed)| !seed.is_empty()) {
            let mut damaged = seed.clone();
            let at = (index * 31) % seed.len();
            damaged[at] ^= 1 << (index % 8);
            for bytes in [&seed[..at], &damaged] {
                let held = std::panic::catch_unwind(|| target(bytes));
                assert!(held.is_ok(), "{name} does not hold on {}", bytes.escape_ascii());
            }
        }
    }
}

/// A target without a program would never be fuzzed.
#[test]
fn every_target_has_a_libfuzzer_program() {
    for (name, _) in fuzz::TARGETS {
        let path = format!("{}/libfuzzer/src/bin/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let program = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(program.contains(&format!("fuzz::{name}::target(data)")), "{path}");
    }
}
