//! libFuzzer program of the target `keytabs`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::keytabs::target(data));
