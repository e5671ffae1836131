//! Programs of ranks for tests and the simulator: what each rank does, and what
//! its library keeps in memory meanwhile. Whether messages came once, in order and
//! whole, they find out themselves.

mod negotiator;
mod program;
mod script;

pub use program::{Found, Program, Progress, State};
pub use script::{Habits, Op, draw};
