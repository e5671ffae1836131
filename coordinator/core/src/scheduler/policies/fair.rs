//! Fair: places go one by one to whoever's turn it is; what nobody waits for
//! goes to programs that can grow.
//!
//! Users take turns by their claims, and within a user jobs go by priority and
//! age. A job that needs several processors gets them all at once: until as many
//! are free nobody behind it starts, unless owners hold so many that it could
//! not have them anyway. Whoever cannot use what is free is passed over.

use gleaner_common::id::JobId;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::{Class, Request};
use crate::scheduler::state::{State, Turn};

pub(super) const FAIR: Named = Named {
    name: "fair",
    line: "one place at a time to whoever used least of their share; what is left is grown into",
    source: "this project; the turns are those of Kay and Lauder 1988",
    build: |_| Box::new(Fair),
};

/// How many are looked at for one that can use what is free. Only those are
/// passed over that owners leave too little for.
const LOOKED_AT: usize = 1_000;

#[derive(Debug)]
struct Fair;

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Start(Turn, u32),
    Grow(JobId, u32),
    /// Free processors gather for this one.
    Gather(Turn, u32),
}

impl Scheduling for Fair {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        // With every place that a user gets, another's turn may come: that is
        // another stage.
        while serve(cycle) && !cycle.has_users() {}
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// Serves whoever comes next. Was there anybody?
fn serve(cycle: &mut Cycle<'_>) -> bool {
    match next(cycle, false).or_else(|| next(cycle, true)) {
        Some(Next::Start(turn, size)) => cycle.start(turn, size),
        Some(Next::Grow(job, by)) => cycle.grow(job, by, Obligation::Voluntary) > 0,
        Some(Next::Gather(turn, needs)) => {
            let free = cycle.free();
            cycle.wait(turn, Reason::TooFewFree { needs, free });
            false
        }
        None => false,
    }
}

fn next(state: &State, modest: bool) -> Option<Next> {
    if state.free() == 0 {
        return None;
    }
    let mut among = state.claimants().take(LOOKED_AT);
    among.find_map(|turn| of_waiting(state, turn).or_else(|| of_running(state, turn.2, modest)))
}

fn of_waiting(state: &State, turn: Turn) -> Option<Next> {
    let request = &state.waiting_at(turn)?.request;
    let may = state.places_for(request);
    let size = size_at_first(state, request, state.free().min(may));
    if let Some(size) = size {
        return Some(Next::Start(turn, size));
    }
    let needs = request.sizes.min();
    let could = needs <= state.resources().processors && needs <= may;
    could.then_some(Next::Gather(turn, needs))
}

/// Who can grow begins with the least where others may come in between.
fn size_at_first(state: &State, request: &Request, most: u32) -> Option<u32> {
    let sizes = &request.sizes;
    let wished = match request.class {
        Class::Malleable if state.has_users() => sizes.min(),
        Class::Malleable | Class::Moldable => sizes.max(),
        Class::Rigid | Class::Evolving => sizes.preferred(),
    };
    sizes.at_most(most.min(wished))
}

/// Does more than one user wait for places or could use more? Then each place
/// may turn the order of their claims.
fn has_rivals(state: &State) -> bool {
    state.users_in_turn().nth(1).is_some()
}

fn of_running(state: &State, job: JobId, modest: bool) -> Option<Next> {
    let it = state.get(job).filter(|it| it.room() > 0 && it.request.is_modest == modest)?;
    let most = state.free().min(state.places_for(&it.request));
    let sizes = &it.request.sizes;
    let all = sizes.taken(it.size, most);
    let step = sizes.at_least(it.size + 1).map_or(0, |next| next - it.size);
    let by = if has_rivals(state) { step.min(all) } else { all };
    (by > 0).then_some(Next::Grow(job, by))
}
