//! libFuzzer program of the target `journals`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::journals::target(data));
