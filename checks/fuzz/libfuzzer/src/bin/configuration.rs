//! libFuzzer program of the target `configuration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::configuration::target(data));
