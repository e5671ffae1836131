#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gleaner_move::fuzzing::archive(bytes));
