//! The mechanisms that ship.

use mechanism::{BUILTIN, Limits, validate};

use crate::child;

#[test]
fn each_passes_the_gates_that_it_shows_to_others() {
    for builtin in BUILTIN {
        match validate(&child(), builtin.script, &Limits::default(), &[]) {
            Ok(valid) => println!("{}: {valid:?}", builtin.name),
            Err(rejection) => panic!("{}: {rejection}", builtin.name),
        }
    }
}
