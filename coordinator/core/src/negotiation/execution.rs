//! How an agreement to give processors is kept (Ghafoor 2007, §4.3.1: "once an
//! agreement is reached, the agreement is executed in the second step").
//!
//! The promise: the scheduler hears once what has come of it. A job that said
//! yes and then does nothing loses them if they must be had, and otherwise has
//! given what it gave.

use gleaner_common::time::Moment;

use super::Effect;

#[derive(Debug, Default)]
pub(super) struct Execution {
    releasing: Option<Releasing>,
    /// What was released of what is being enforced.
    enforcing: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Releasing {
    left: u32,
    given: u32,
    until: Moment,
    /// The scheduler has asked for them, and must it have them? `None`: the job
    /// gives them by itself.
    asked: Option<bool>,
}

impl Execution {
    pub(super) fn is_free(&self) -> bool {
        self.releasing.is_none() && self.enforcing.is_none()
    }

    pub(super) fn promised(&mut self, until: Moment, by: u32, asked: Option<bool>) {
        self.releasing = Some(Releasing { left: by, given: 0, until, asked });
    }

    /// One rank has ended. Is it of those that were asked for?
    pub(super) fn released(&mut self, out: &mut Vec<Effect>) -> bool {
        let Some(releasing) = &mut self.releasing else { return false };
        releasing.left -= 1;
        releasing.given += 1;
        let Releasing { left, given, asked, .. } = *releasing;
        if left == 0 {
            self.releasing = None;
            out.extend(asked.map(|_| Effect::Answered { by: given }));
        }
        asked.is_some()
    }

    pub(super) fn enforce(&mut self, by: u32, out: &mut Vec<Effect>) {
        self.enforcing.get_or_insert(0);
        out.push(Effect::Enforce { by });
    }

    pub(super) fn enforced(&mut self, by: u32, out: &mut Vec<Effect>) {
        if let Some(given) = self.enforcing.take() {
            out.push(Effect::Answered { by: given + by });
        }
    }

    /// The program begins again: nobody releases anything of it.
    pub(super) fn abandon(self, out: &mut Vec<Effect>) {
        let given = self.releasing.filter(|it| it.asked.is_some()).map(|it| it.given);
        out.extend(given.or(self.enforcing).map(|by| Effect::Answered { by }));
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.releasing.map(|it| it.until)
    }

    pub(super) fn wake(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(it) = self.releasing.take_if(|it| it.until <= now) else { return };
        let promised = it.left + it.given;
        out.push(Effect::Note(format!("it gave {} of {promised} processors in time", it.given)));
        match it.asked {
            Some(true) => {
                self.enforcing = Some(it.given);
                out.push(Effect::Enforce { by: it.left });
            }
            Some(false) => out.push(Effect::Answered { by: it.given }),
            None => {}
        }
    }
}
