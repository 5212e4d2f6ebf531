//! libFuzzer program of the target `requests`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::requests::target(data));
