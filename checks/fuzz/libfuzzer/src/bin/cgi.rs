//! libFuzzer program of the target `cgi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cgi::target(data));
