//! Runs every fuzz target on its corpus, so that ordinary tests find regressions without libFuzzer.

#[test]
fn every_target_passes_on_its_corpus() {
    for (name, target) in fuzz::TARGETS {
        let seeds = fuzz::seeds::of(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert!(seeds.len() >= 5, "{name} has only {} seeds", seeds.len());
        for seed in &seeds {
            let held = std::panic::catch_unwind(|| target(seed));
            assert!(held.is_ok(), "{name} fails on {}", seed.escape_ascii());
        }
    }
}

/// Checks truncated and damaged messages, which a fuzzer tries first.
#[test]
fn every_target_passes_on_damaged_seeds() {
    for (name, target) in fuzz::TARGETS {
        let seeds = fuzz::seeds::of(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        for (index, seed) in seeds.iter().enumerate().filter(|(_, seed)| !seed.is_empty()) {
            let mut damaged = seed.clone();
            let at = (index * 31) % seed.len();
            damaged[at] ^= 1 << (index % 8);
            for bytes in [&seed[..at], &damaged] {
                let held = std::panic::catch_unwind(|| target(bytes));
                assert!(held.is_ok(), "{name} fails on {}", bytes.escape_ascii());
            }
        }
    }
}

/// Checks that every target has a libFuzzer program, because it would never be fuzzed otherwise.
#[test]
fn every_target_has_a_libfuzzer_program() {
    for (name, _) in fuzz::TARGETS {
        let path = format!("{}/libfuzzer/src/bin/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let program = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(program.contains(&format!("fuzz::{name}::target(data)")), "{path}");
    }
}
