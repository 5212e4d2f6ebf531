//! libFuzzer program of the target `macaroons`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::macaroons::target(data));
