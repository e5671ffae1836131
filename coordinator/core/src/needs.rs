//! What a job asks of a workstation beside a place, and what workstations say
//! of themselves.

use std::path::Path;

use gleaner_common::job::JobSpec;
use gleaner_common::requirement::{Attributes, Requirement, Value};
use gleaner_common::units::spoken_size;
use gleaner_common::wire::Facts;

use crate::workstation::Workstation;

/// What a job asks of a workstation beside a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    pub(crate) memory_bytes: u64,
    pub(crate) shared: Option<&'a str>,
    pub(crate) require: &'a Requirement,
    pub(crate) prefer: &'a Requirement,
}

impl<'a> Needs<'a> {
    pub(crate) fn of(spec: &'a JobSpec) -> Self {
        Self {
            memory_bytes: spec.limits.memory_bytes_max,
            shared: spec.shared_directory.as_deref(),
            require: &spec.require,
            prefer: &spec.prefer,
        }
    }

    /// Will any workstation do?
    pub(crate) fn are_none(&self) -> bool {
        self.memory_bytes == 0 && self.shared.is_none() && self.require.is_none()
    }

    /// Has the workstation what is needed?
    pub(crate) fn are_met(&self, by: &Workstation) -> bool {
        self.has_memory(by) && self.has_shared(by) && self.require.is_met(&by.attributes)
    }

    /// How many of the preferred conditions a workstation meets.
    pub(crate) fn preference(&self, of: &Workstation) -> usize {
        self.prefer.conditions().len() - self.prefer.unmet(&of.attributes).count()
    }

    /// Each condition that the workstation does not meet, in words.
    pub(crate) fn unmet(&self, by: &Workstation) -> Vec<String> {
        let memory =
            (!self.has_memory(by)).then(|| format!("memory >= {}", spoken_size(self.memory_bytes)));
        let shared = (!self.has_shared(by))
            .then(|| format!("the shared directory {}", self.shared.unwrap_or_default()));
        let required = self.require.unmet(&by.attributes).map(ToString::to_string);
        memory.into_iter().chain(shared).chain(required).collect()
    }

    /// One that does not say how much memory it has is tried.
    fn has_memory(&self, workstation: &Workstation) -> bool {
        let has = workstation.facts.memory_bytes;
        has == 0 || self.memory_bytes <= has
    }

    fn has_shared(&self, workstation: &Workstation) -> bool {
        let offered = &workstation.facts.shared_directories;
        self.shared.is_none_or(|wanted| offered.iter().any(|it| Path::new(wanted).starts_with(it)))
    }
}

/// What requirements see of a workstation. What its site says stands behind
/// what its agent has measured.
pub(crate) fn attributes(name: &str, facts: &Facts) -> Attributes {
    let text = |text: &str| Value::Text(text.to_owned());
    let count = |count: u16| Value::Number(count.into());
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53 bytes")]
    let size = |bytes: u64| Value::Number(bytes as f64);
    let machine = &facts.machine;
    let disk = machine.disks.iter().map(|disk| disk.free_bytes).max().unwrap_or(0);
    let measured = [
        ("name", text(name)),
        ("cores", count(facts.cores)),
        ("physical_cores", count(machine.physical_cores)),
        ("places", count(facts.places)),
        ("memory", size(facts.memory_bytes)),
        ("disk", size(disk)),
        ("speed", Value::Number(facts.speed.into())),
        ("kernel", text(&facts.kernel)),
        ("os", text(&machine.os)),
        ("processor", text(&machine.processor)),
        ("moves", Value::Flag(facts.fingerprint.is_some())),
    ];
    let mut all = facts.attributes.clone();
    all.extend(measured.map(|(name, value)| (name.to_owned(), value)));
    all
}
