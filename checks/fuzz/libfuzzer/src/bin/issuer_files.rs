//! libFuzzer program of the target `issuer_files`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::issuer_files::target(data));
