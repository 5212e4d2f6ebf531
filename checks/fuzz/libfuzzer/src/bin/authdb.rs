//! libFuzzer program of the target `authdb`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::authdb::target(data));
