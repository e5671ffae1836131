//! Kumar's uniform first fit: everybody its minimum, and what is left in equal
//! parts (Kumar 2001, §3.2.2).

use super::partition::{Admission, Part, divide, fill};
use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};

pub(super) const UNIFORM: Named = Named {
    name: "kumar-uniform",
    line: "whoever fits on its minimum starts; what is left is shared equally up to each maximum",
    source: "Kumar 2001, §3.2.2",
    build: |_| Box::new(Uniform),
};

#[derive(Debug)]
struct Uniform;

impl Scheduling for Uniform {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        divide(cycle, Admission::FirstFit, |parts, total| {
            fill(parts, total, |part: &Part<'_>, level| {
                let Part { sizes, .. } = part;
                sizes.min() + level.min(sizes.max() - sizes.min())
            })
        });
    }
}
