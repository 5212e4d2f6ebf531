//! libFuzzer program of the target `journals`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::journals::target(data));
