//! libFuzzer program of the target `key_sets`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::key_sets::target(data));
