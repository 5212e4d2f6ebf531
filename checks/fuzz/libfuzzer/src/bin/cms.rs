//! libFuzzer program of the target `cms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cms::target(data));
