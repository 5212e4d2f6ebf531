//! libFuzzer program of the target `stored_attributes`; libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::stored_attributes::target(data));
