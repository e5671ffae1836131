//! Sessions with a screen: whose input is heard, and by whom?
//!
//! The promise: a screen that somebody may sit at, and that nothing can hear,
//! means busy. A keyboard's device hears the screens of its seat; a helper
//! inside hears its own session; and a desktop that says itself that it is
//! idle is believed. A helper's word counts for its own user's sessions only,
//! and not for long: who lies makes their own session look used or idle.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::time::Moment;

/// A helper says its word anew within a third of this.
pub const WORD_LASTS: Duration = Duration::from_secs(90);

/// One graphical session, as the session manager tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    pub uid: u32,
    /// "session 4 of ann (x11, remote)"
    pub what: String,
    /// It has a seat: keyboards and pointers that are plugged in here.
    pub seat: bool,
    /// For how long it has said of itself that it is idle.
    pub hint: Option<Duration>,
}

/// What a helper says of the session that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Tells helpers apart.
    pub helper: u64,
    /// Whom the kernel says it is.
    pub uid: u32,
    /// The session's id, as the helper says.
    pub session: Option<String>,
    /// For people: "x11 :10".
    pub display: String,
    /// How long nobody has used it.
    pub idle: Duration,
}

#[derive(Clone, Debug)]
struct Helper {
    uid: u32,
    session: Option<String>,
    heard: Moment,
}

/// All screens, and who can hear them.
#[derive(Clone, Debug, Default)]
pub(super) struct Screens {
    screens: BTreeMap<String, Screen>,
    helpers: BTreeMap<u64, Helper>,
}

impl Screens {
    /// Was it used just now? That shows where it stops saying that it is idle.
    pub(super) fn changed(&mut self, id: String, screen: Option<Screen>) -> Option<String> {
        let Some(screen) = screen else {
            self.screens.remove(&id);
            return None;
        };
        let awake = screen.hint.is_none().then(|| screen.what.clone());
        let before = self.screens.insert(id, screen);
        awake.filter(|_| before.is_some_and(|before| before.hint.is_some()))
    }

    pub(super) fn said(&mut self, now: Moment, word: Word) {
        let Word { helper, uid, session, .. } = word;
        self.helpers.insert(helper, Helper { uid, session, heard: now });
    }

    pub(super) fn left(&mut self, helper: u64) {
        self.helpers.remove(&helper);
    }

    /// The first screen that nothing hears. `input`: keyboards are heard.
    pub(super) fn unheard(&self, input: bool) -> Option<&str> {
        let unheard = self.screens.iter().find(|(id, screen)| {
            !(screen.seat && input) && screen.hint.is_none() && !self.is_helped(id, screen)
        });
        unheard.map(|(_, screen)| screen.what.as_str())
    }

    /// Forgets the words that have lasted.
    pub(super) fn forget(&mut self, now: Moment) {
        self.helpers.retain(|_, helper| now < helper.heard + WORD_LASTS);
    }

    /// When the next word is to be forgotten.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.helpers.values().map(|helper| helper.heard + WORD_LASTS).min()
    }

    fn is_helped(&self, id: &str, screen: &Screen) -> bool {
        let its = |other: &Screen| other.uid == screen.uid;
        let alone = self.screens.values().filter(|other| its(other)).count() == 1;
        let mut own = self.helpers.values().filter(|helper| helper.uid == screen.uid);
        own.any(|helper| alone || helper.session.as_deref() == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    fn screen(uid: u32, seat: bool) -> Screen {
        Screen { uid, what: format!("of {uid}"), seat, hint: None }
    }

    fn word(uid: u32, session: Option<&str>) -> Word {
        let session = session.map(str::to_owned);
        Word { helper: 1, uid, session, display: "x11 :1".into(), idle: Duration::ZERO }
    }

    #[test]
    fn a_keyboard_hears_its_seat_and_nothing_else() {
        let mut screens = Screens::default();
        assert_eq!(screens.unheard(false), None);
        screens.changed("1".into(), Some(screen(1_000, true)));
        assert_eq!(screens.unheard(true), None);
        assert_eq!(screens.unheard(false), Some("of 1000"));
        screens.changed("2".into(), Some(screen(1_001, false)));
        assert_eq!(screens.unheard(true), Some("of 1001"));
        screens.changed("2".into(), None);
        assert_eq!(screens.unheard(true), None);
    }

    #[test]
    fn a_helper_hears_its_own_users_session_and_not_for_ever() {
        let mut screens = Screens::default();
        screens.changed("1".into(), Some(screen(1_000, false)));
        screens.said(at(0), word(1_001, Some("1")));
        assert!(screens.unheard(true).is_some(), "another user's word");
        screens.said(at(1), word(1_000, None));
        assert_eq!(screens.unheard(true), None);
        assert_eq!(screens.deadline(), Some(at(91)));
        screens.forget(at(91));
        assert!(screens.unheard(true).is_some(), "it has been silent");
        screens.changed("2".into(), Some(screen(1_000, false)));
        screens.said(at(100), word(1_000, None));
        assert!(screens.unheard(true).is_some(), "which of the two?");
        screens.said(at(100), word(1_000, Some("1")));
        assert_eq!(screens.unheard(true), Some("of 1000"), "the second one");
        screens.left(1);
        screens.changed("2".into(), None);
        assert!(screens.unheard(true).is_some());
    }

    #[test]
    fn a_session_that_says_it_is_idle_is_believed_until_it_does_not() {
        let mut screens = Screens::default();
        let hinting = |hint| Some(Screen { hint, ..screen(1_000, false) });
        assert_eq!(screens.changed("1".into(), hinting(None)), None);
        assert_eq!(screens.changed("1".into(), hinting(Some(Duration::ZERO))), None);
        assert_eq!(screens.unheard(false), None);
        assert_eq!(screens.changed("1".into(), hinting(None)), Some("of 1000".into()));
        assert!(screens.unheard(false).is_some());
    }
}
