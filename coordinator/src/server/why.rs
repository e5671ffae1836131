//! Answers to "why?": from the core's reasons, or from the record of what has
//! ended.

use std::sync::Arc;

use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::SubprogramRow;
use gleaner_common::wire::Reply;

use super::request::Refusal;
use super::{Shared, listing};

pub(super) async fn subprogram(shared: &Arc<Shared>, id: SubprogramId) -> Result<Reply, Refusal> {
    if let Some(reasons) = shared.brain.look(move |core, now| core.why_subprogram(now, id)).await? {
        return Ok(Reply::Why(reasons));
    }
    let row = listing::subprogram_row(shared, id).await?;
    Ok(Reply::Why(vec![how_it_ended(&row)]))
}

fn how_it_ended(row: &SubprogramRow) -> String {
    let state = row.state.name();
    let place = row.workstation.as_ref().map_or(String::new(), |name| format!(" on {name}"));
    let how = match &row.outcome {
        Some(outcome) if outcome != state => format!(": {outcome}"),
        _ => String::new(),
    };
    let attempts = if row.attempts == 1 { "attempt" } else { "attempts" };
    format!("{state}{place}{how}, after {} {attempts}", row.attempts)
}

pub(super) async fn job(shared: &Arc<Shared>, job: JobId) -> Result<Reply, Refusal> {
    if let Some(reasons) = shared.brain.look(move |core, now| core.why_job(now, job)).await? {
        return Ok(Reply::Why(reasons));
    }
    let progress = listing::job_record(shared, job).await?.progress;
    Ok(Reply::Why(vec![format!(
        "it has ended: {}: {} succeeded, {} failed, {} cancelled",
        progress.state.name(),
        progress.counts.succeeded,
        progress.counts.failed,
        progress.counts.cancelled
    )]))
}

pub(super) async fn workstation(shared: &Arc<Shared>, name: String) -> Result<Reply, Refusal> {
    let asked = name.clone();
    let reasons = shared
        .brain
        .look(move |core, now| core.why_workstation(now, core.workstation_named(&asked)?))
        .await?;
    reasons.map(Reply::Why).ok_or(Refusal::UnknownWorkstation(name))
}
