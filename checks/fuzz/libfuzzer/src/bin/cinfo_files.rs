//! libFuzzer program of the target `cinfo_files`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cinfo_files::target(data));
