//! What a job asks for, before it is one.

use gleaner_common::job::JobSpec;
use gleaner_common::time::Moment;

use super::request_of;
use crate::core::Core;
use crate::scheduler::{Allowed, Reason, Request, RequestError, Sizes};

impl Core {
    /// Has this job more parts that run at once than there are places, whatever
    /// owners do? Nobody knows before all workstations have been heard.
    pub(in crate::core) fn larger_than_all(&self, spec: &JobSpec) -> Option<String> {
        let (needs, all) = (spec.needs_at_once(), self.pool.places()?);
        (needs > all).then(|| format!("not taken: {}", Reason::LargerThanAll { needs, all }))
    }

    /// Would this job be taken if it were submitted now (Kumar 2001, §3.2.1,
    /// `is_available`)? And what would become of it.
    ///
    /// # Errors
    /// Why not.
    pub fn would_take(&self, now: Moment, user: &str, spec: &JobSpec) -> Result<String, String> {
        spec.check().map_err(|wrong| wrong.to_string())?;
        if let Some(refusal) = self.too_much(user, spec).or_else(|| self.larger_than_all(spec)) {
            return Err(refusal);
        }
        let request = asked_for(spec).map_err(|wrong| wrong.to_string())?;
        let scheduler = &self.schedule.scheduler;
        scheduler.ask(now, &request).map_err(|reason| format!("not taken: {reason}"))?;
        let (needs, free) = (spec.needs_at_once(), scheduler.state().free());
        let waiting = scheduler.state().waiting_count();
        let room = format!("it needs {needs} places, {free} are free and {waiting} jobs wait");
        let at_once = free >= needs && waiting == 0;
        Ok(format!("it would {}: {room}", if at_once { "start at once" } else { "wait" }))
    }
}

/// What a job asks for when it is submitted.
///
/// # Errors
/// What of it makes no sense.
pub(in crate::core) fn asked_for(spec: &JobSpec) -> Result<Request, RequestError> {
    let count = spec.indexes.len();
    let is_program = spec.program.is_some();
    let sizes = if is_program {
        Sizes::new([spec.needs_at_once(), count, count], Allowed::Any)?
    } else {
        spec.shape.sizes_of_bag(count)?
    };
    let request = request_of(spec, sizes);
    request.check()?;
    Ok(request)
}
