//! libFuzzer program of the target `pwd_messages`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::pwd_messages::target(data));
