//! What a job asks of a workstation, and what workstations say of themselves.

use std::path::Path;

use gleaner_common::amounts::Amounts;
use gleaner_common::job::JobSpec;
use gleaner_common::requirement::{Attributes, Requirement, Value};
use gleaner_common::wire::Facts;

use crate::workstation::Workstation;

/// What each subprogram of a job asks of its workstation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    pub(crate) asked: Amounts,
    pub(crate) shared: Option<&'a str>,
    pub(crate) require: &'a Requirement,
    pub(crate) prefer: &'a Requirement,
    /// The group of workstations that was chosen for it.
    pub(crate) group: Option<&'a str>,
}

/// Something that a workstation has not, and what it has instead, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    pub(crate) what: String,
    pub(crate) lends: Option<String>,
}

impl<'a> Needs<'a> {
    pub(crate) fn of(spec: &'a JobSpec) -> Self {
        Self {
            asked: spec.asked(),
            shared: spec.shared_directory.as_deref(),
            require: &spec.require,
            prefer: &spec.prefer,
            group: None,
        }
    }

    /// Will any workstation do, as long as it has a core free?
    pub(crate) fn are_none(&self) -> bool {
        self.asked == Amounts::ONE_CORE
            && self.shared.is_none()
            && self.require.is_none()
            && self.group.is_none()
    }

    /// Has the workstation what is needed, and would lend it if nobody had it?
    pub(crate) fn are_met(&self, by: &Workstation) -> bool {
        let lends = by.facts.lends();
        lends.covers(lends.part(self.asked))
            && self.has_shared(by)
            && self.require.is_met(&by.attributes)
            && self.group.is_none_or(|group| group_of(by) == group)
    }

    /// And is that free now?
    pub(crate) fn are_met_now(&self, by: &Workstation) -> bool {
        by.has_free(self.asked) && self.are_met(by)
    }

    /// How many preferred conditions a workstation meets.
    pub(crate) fn preference(&self, of: &Workstation) -> usize {
        self.prefer.conditions().len() - self.prefer.unmet(&of.attributes).count()
    }

    /// Each condition that the workstation does not meet.
    pub(crate) fn unmet(&self, by: &Workstation) -> Vec<Unmet> {
        let lends = by.facts.lends();
        let lacking = lends.part(self.asked).lacking(lends).into_iter();
        let amounts = lacking.map(|(what, lends)| Unmet { what, lends: Some(lends) });
        let shared = (!self.has_shared(by))
            .then(|| format!("the shared directory {}", self.shared.unwrap_or_default()));
        let required = self.require.unmet(&by.attributes).map(ToString::to_string);
        let others = shared.into_iter().chain(required).map(|what| Unmet { what, lends: None });
        amounts.chain(others).collect()
    }

    fn has_shared(&self, workstation: &Workstation) -> bool {
        let offered = &workstation.facts.shared_directories;
        self.shared.is_none_or(|wanted| offered.iter().any(|it| Path::new(wanted).starts_with(it)))
    }
}

/// Where a workstation stands: a lab, a floor. Those of which nobody says so are
/// one group.
pub(crate) fn group_of(workstation: &Workstation) -> &str {
    match workstation.attributes.get("group") {
        Some(Value::Text(group)) => group,
        Some(Value::Number(_) | Value::Flag(_)) | None => "",
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
        ("gpus", count(facts.gpus)),
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
