//! libFuzzer program of the target `voms_signers`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::voms_signers::target(data));
