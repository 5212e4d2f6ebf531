//! libFuzzer program of the target `monitoring`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::monitoring::target(data));
