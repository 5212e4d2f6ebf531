//! libFuzzer program of the target `http_bodies`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http_bodies::target(data));
