//! Offers and requests of programs, from the pool to their ranks and back.

use gleaner_common::program::ProgramSpec;
use gleaner_program_core::address::{Negotiation, Rank, Request};
use gleaner_program_core::negotiation::{
    Change, Obligation, Party, Said, Statement, Status, Template, Why,
};
use gleaner_program_core::wire::{self, Ask, FromRank, ToRank};

use super::*;
use crate::scheduler::{self, Decision};

const GROWS: ProgramSpec = ProgramSpec {
    increases: true,
    spawns: false,
    ranks_max: 8,
    checkpoint_every: None,
    record: false,
};

/// A program of two ranks, of which the first negotiates.
fn negotiating() -> (Site, JobId, Vec<Offered>) {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_program(2, GROWS);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    site.ask(offered[0], 1, Ask::Negotiates);
    site.check_answer(offered[0].0, 1, &wire::Answer::Noted);
    (site, job, offered)
}

fn becomes_idle(site: &mut Site, id: u32, places: u16) -> Vec<Offered> {
    site.enrol(id);
    site.connect(id, places, places)
}

/// What the workstation's rank was told of a negotiation with the last step.
#[track_caller]
fn told_of(site: &Site, to: u32) -> Said {
    let told = site.told();
    let said = told.iter().filter(|(id, _)| *id == to).find_map(|(_, what)| {
        if let ToRank::Negotiate(said) = what { Some(said.clone()) } else { None }
    });
    said.unwrap_or_else(|| panic!("nothing was said: {told:?}"))
}

fn reply(site: &mut Site, at: Offered, to: &Said, statement: Statement) -> Vec<Offered> {
    let said = Said { round: to.round + 1, statement, ..to.clone() };
    site.say(at, &FromRank::Negotiate(said))
}

fn accept(site: &mut Site, at: Offered, offer: &Said) -> Vec<Offered> {
    let agreed = offer.statement.proposes().unwrap().0.clone().all(Status::Accepted);
    reply(site, at, offer, Statement::Accept { agreed, first: None })
}

#[test]
fn a_program_that_negotiates_is_offered_what_becomes_free_and_takes_what_it_wants() {
    let (mut site, _, offered) = negotiating();
    assert_eq!(becomes_idle(&mut site, 3, 3), [], "it is asked first");
    let offer = told_of(&site, offered[0].0);
    let (template, _) = offer.statement.proposes().unwrap();
    assert_eq!(template.change(), Some(Change::Grow { by: 3 }));
    let mut two = template.clone();
    two.items[0].change = Change::Grow { by: 2 };
    let begun = reply(&mut site, offered[0], &offer, Statement::CounterOffer(two));
    assert_eq!(begun.len(), 2, "and gets what it says");
    let said = told_of(&site, offered[0].0);
    let Statement::Accept { agreed, first } = &said.statement else { panic!("{said:?}") };
    assert_eq!((agreed.change(), *first), (Some(Change::Grow { by: 2 }), Some(Rank(2))));
    assert_eq!(site.rank_offers()[0].parent, Some(0), "whoever agreed is their parent");
}

#[test]
fn a_program_that_wants_no_more_gets_none() {
    let (mut site, _, offered) = negotiating();
    becomes_idle(&mut site, 3, 1);
    let offer = told_of(&site, offered[0].0);
    assert_eq!(reply(&mut site, offered[0], &offer, Statement::Reject(Why::Unwanted)), []);
    let end = told_of(&site, offered[0].0);
    assert_eq!(end.statement, Statement::Reject(Why::Unwanted));
}

#[test]
fn an_offer_that_is_not_heard_is_made_again_and_lapses_in_time() {
    let (mut site, _, offered) = negotiating();
    becomes_idle(&mut site, 3, 1);
    let offer = told_of(&site, offered[0].0);
    // The agent is there, and the program says nothing.
    let mut again = 0;
    for _ in 0..10 {
        for id in 1..=3 {
            site.heartbeat(id);
        }
        site.pass(s(4));
        again +=
            usize::from(site.told().contains(&(offered[0].0, ToRank::Negotiate(offer.clone()))));
    }
    assert!((2..8).contains(&again), "{again} times");
    // What it says then is too late.
    assert_eq!(accept(&mut site, offered[0], &offer), []);
    assert_eq!(told_of(&site, offered[0].0).statement, Statement::Reject(Why::Late));
}

#[test]
fn an_agent_that_is_connected_again_hears_what_its_rank_has_missed() {
    let (mut site, _, offered) = negotiating();
    becomes_idle(&mut site, 3, 1);
    let offer = told_of(&site, offered[0].0);
    site.reconnect(offered[0].0, 2, &[offered[0].2]);
    assert!(site.told().contains(&(offered[0].0, ToRank::Negotiate(offer))));
}

#[test]
fn what_is_asked_for_in_rounds_begins_when_the_rank_has_agreed() {
    let (mut site, _, offered) = negotiating();
    becomes_idle(&mut site, 3, 1);
    let template = Template::processors(s(10), Change::Grow { by: 4 }, Obligation::Voluntary);
    let opening = Said {
        opener: Party::Job,
        negotiation: Negotiation(2),
        round: 0,
        statement: Statement::Offer(template),
    };
    site.ask(offered[0], 2, Ask::Negotiate(opening.clone()));
    let answered = |site: &Site, request| {
        site.told().into_iter().find_map(|(_, what)| {
            let ToRank::Answered { request: to, answer: wire::Answer::Negotiated(said) } = what
            else {
                return None;
            };
            (to == Request(request)).then_some(said)
        })
    };
    let counter = answered(&site, 2).expect("an answer at once");
    let (template, _) = counter.statement.proposes().unwrap();
    assert_eq!(template.change(), Some(Change::Grow { by: 1 }));
    let agreed = template.clone().all(Status::Accepted);
    let statement = Statement::Accept { agreed, first: None };
    let taken = Said { round: counter.round + 1, statement, ..counter };
    let ask = Ask::Negotiate(taken);
    let begun = site.say(offered[0], &FromRank::Ask { request: Request(3), ask: ask.clone() });
    assert_eq!(begun.len(), 1);
    let agreed = answered(&site, 3).unwrap();
    // Over a restart it is the same, and nothing begins twice.
    site.restart(JobId(1));
    site.reconnect(offered[0].0, 2, &[offered[0].2]);
    let bytes = postcard::to_stdvec(&FromRank::Ask { request: Request(3), ask }).unwrap();
    let frame = AgentFrame::FromRank { fence: offered[0].2, life: super::ranks::LIFE, bytes };
    let from = link(offered[0].0, 2);
    assert_eq!(site.handle(Event::Heard { from, frame }), []);
    let again = answered(&site, 3).unwrap();
    assert_eq!(again.statement, agreed.statement);
}

#[test]
fn who_negotiates_is_remembered_over_a_restart() {
    let (mut site, job, offered) = negotiating();
    site.restart(job);
    for (id, _, fence) in &offered {
        site.reconnect(*id, 2, &[*fence]);
    }
    becomes_idle(&mut site, 3, 1);
    assert!(told_of(&site, offered[0].0).statement.proposes().is_some());
}

#[test]
fn a_mandatory_shrink_is_told_to_the_rank_that_negotiates_and_kept() {
    let (mut site, job, offered) = negotiating();
    let mut draft = super::super::Draft::new(site.now, site.wall());
    let obligation = scheduler::Obligation::Mandatory;
    site.core.negotiate(&mut draft, job, &Decision::Shrink { job, by: 1, obligation });
    site.last = draft.step;
    let offer = told_of(&site, offered[0].0);
    let (template, _) = offer.statement.proposes().unwrap();
    assert_eq!(template.change(), Some(Change::Shrink { by: 1 }));
    assert!(template.is_mandatory());
    accept(&mut site, offered[0], &offer);
    let said = told_of(&site, offered[0].0);
    assert!(matches!(said.statement, Statement::Accept { .. }), "{said:?}");
    // It does not keep its word, and its user is told what follows.
    for _ in 0..20 {
        (1..=2).for_each(|id| _ = site.heartbeat(id));
        site.pass(s(4));
    }
    let notes = site.notes(job);
    assert!(notes.contains(&"it gave 0 of 1 processors in time".to_owned()), "{notes:?}");
}

#[test]
fn a_rank_that_says_nonsense_gets_nothing_and_its_user_is_told() {
    let (mut site, job, offered) = negotiating();
    becomes_idle(&mut site, 3, 1);
    let offer = told_of(&site, offered[0].0);
    let shrink = Template::processors(s(10), Change::Shrink { by: 9 }, Obligation::Mandatory);
    assert_eq!(reply(&mut site, offered[0], &offer, Statement::CounterOffer(shrink)), []);
    assert_eq!(told_of(&site, offered[0].0).statement, Statement::Reject(Why::Nonsense));
    let told = "rank 0 negotiates nonsense: it is not about what was offered".to_owned();
    assert_eq!(site.notes(job), [told]);
}
