//! libFuzzer program of the target `archives`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::archives::target(data));
