//! Runs a program in a lab.

use crate::execution::Execution;
use crate::lab::Lab;
use crate::model::Model;
use crate::observer::Observer;
use crate::program::Program;

/// Room to work in, to be used again and again.
#[derive(Debug, Default)]
pub struct Scratch {}

/// Runs a program once.
pub fn run(program: &Program, lab: &Lab, model: &Model, scratch: &mut Scratch) -> Execution {
    run_observed(program, lab, model, scratch, &mut ())
}

/// Runs a program once, and tells somebody what happens.
pub fn run_observed(
    _program: &Program,
    _lab: &Lab,
    _model: &Model,
    _scratch: &mut Scratch,
    _observer: &mut impl Observer,
) -> Execution {
    todo!()
}
