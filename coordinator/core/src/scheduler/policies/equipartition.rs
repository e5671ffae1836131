//! Equipartition: the whole set of processors in equal parts, as far as
//! minimums and maximums let it (Buisson et al. 2007, §III and §V.C).

use super::partition::{Admission, Part, divide, fill};
use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};

pub(super) const EQUIPARTITION: Named = Named {
    name: "equipartition",
    line: "all processors in equal parts, within each job's bounds; jobs start in order",
    source: "McCann and Zahorjan 1994; Hungershöfer 2004; Ghafoor 2007, §2.2",
    build: |_| Box::new(Equipartition),
};

#[derive(Debug)]
struct Equipartition;

impl Scheduling for Equipartition {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        divide(cycle, Admission::InOrder, |parts, total| {
            fill(parts, total, |Part { sizes, .. }: &Part<'_>, level| {
                level.clamp(sizes.min(), sizes.max())
            })
        });
    }
}
