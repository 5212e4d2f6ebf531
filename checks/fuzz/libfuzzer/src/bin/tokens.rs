//! libFuzzer program of the target `tokens`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::tokens::target(data));
