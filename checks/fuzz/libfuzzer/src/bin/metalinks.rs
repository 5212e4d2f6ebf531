//! libFuzzer program of the target `metalinks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::metalinks::target(data));
