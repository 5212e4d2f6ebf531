//! libFuzzer program of the target `requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::requests::target(data));
