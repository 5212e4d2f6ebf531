//! libFuzzer program of the target `paths`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::paths::target(data));
