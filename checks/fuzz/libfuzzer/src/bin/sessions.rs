//! libFuzzer program of the target `sessions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::sessions::target(data));
