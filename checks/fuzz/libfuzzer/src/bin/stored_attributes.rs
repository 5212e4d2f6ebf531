//! libFuzzer program of the target `stored_attributes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::stored_attributes::target(data));
