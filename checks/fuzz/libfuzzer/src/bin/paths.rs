//! libFuzzer program of the target `paths`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::paths::target(data));
