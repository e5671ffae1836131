//! Why the workstation is busy or idle, in words.

use gleaner_common::time::{Moment, Spoken};
use gleaner_common::usage::REASON_BYTES_MAX;

use super::{Culprit, Health, Occupancy, Pause, Sensor, Touch};

/// Why the workstation is busy, the strongest reason first.
pub(super) enum Why<'a> {
    Asleep,
    Paused(&'a Pause),
    Closed(&'a str),
    Unheard(Sensor, Option<&'a Health>),
    Silent(Moment),
    Held(&'a str),
    /// Nothing hears this session's input.
    Deaf(&'a str),
    Touched(&'a Touch),
    Loaded,
    Unknown,
}

impl Occupancy {
    /// `None`: nothing speaks for busy.
    pub(super) fn why(&self, now: Moment) -> Option<Why<'_>> {
        if self.asleep {
            return Some(Why::Asleep);
        }
        if let Some(pause) = &self.pause
            && pause.until.as_ref().is_none_or(|until| now < until.at)
        {
            return Some(Why::Paused(pause));
        }
        if let Some(why) = self.closing.first() {
            return Some(Why::Closed(why));
        }
        if let Some((sensor, health)) = self.unheard() {
            return Some(Why::Unheard(sensor, health));
        }
        if self.silent {
            return Some(Why::Silent(self.load_heard()));
        }
        if let Some(what) = self.holds.values().next() {
            return Some(Why::Held(what));
        }
        if let Some(touch) = self.recent_touch(now) {
            return Some(Why::Touched(touch));
        }
        if let Some(session) = self.screens.unheard(self.hears_seats()) {
            return Some(Why::Deaf(session));
        }
        if self.is_recently_loaded(now) {
            return Some(Why::Loaded);
        }
        (now < self.watching + self.quiet()).then_some(Why::Unknown)
    }

    /// Why, for people: "pts/3, 2.0 s ago".
    pub fn reason(&self, now: Moment) -> String {
        let ago = |at: Moment| Spoken(now.since(at));
        let text = match self.why(now) {
            Some(Why::Asleep) => "the machine or the agent is stopping".into(),
            Some(Why::Paused(Pause { by, until: None })) => format!("paused by {by}"),
            Some(Why::Paused(Pause { by, until: Some(until) })) => {
                format!("paused by {by} until {}", until.said)
            }
            Some(Why::Unheard(sensor, health)) => {
                match health.and_then(|health| Some((health.name(), health.trouble()?))) {
                    Some((name, what)) => format!("the {sensor} sensor is {name}: {what}"),
                    None => format!("the {sensor} sensor has not reported"),
                }
            }
            Some(Why::Silent(last)) => format!("the load sensor has been silent for {}", ago(last)),
            Some(Why::Closed(what) | Why::Held(what)) => what.to_owned(),
            Some(Why::Deaf(session)) => {
                format!("{session}: nothing hears its input, not even a `glean presence` in it")
            }
            Some(Why::Touched(touch)) if self.is_loaded() => {
                format!("{}, {} ago; {}", touch.source, ago(touch.at), self.load_reason(now))
            }
            Some(Why::Touched(touch)) => format!("{}, {} ago", touch.source, ago(touch.at)),
            Some(Why::Loaded) => match &self.culprit {
                Some(Culprit { name, uid }) => {
                    format!("{}, `{name}` of uid {uid}", self.load_reason(now))
                }
                None => self.load_reason(now),
            },
            Some(Why::Unknown) => format!("watching for {} only", ago(self.watching)),
            None => self.idle_reason(now),
        };
        spoken_safely(text)
    }

    fn load_reason(&self, now: Moment) -> String {
        let (one, limit) = (self.load.one(), self.criteria.load_idle_max);
        match (self.load.use_cores(), self.loaded) {
            _ if one > limit => format!("load {one:.2}, over {limit}"),
            (Some(used), _) if used > self.criteria.rise_cores => {
                format!("load rising from {one:.2}, {used:.1} cores in use")
            }
            (_, Some(at)) => match &self.pressed {
                Some((then, what)) if *then == at => what.clone(),
                Some(_) | None => format!("load was over {limit} {} ago", Spoken(now.since(at))),
            },
            (_, None) => format!("load {one:.2}"),
        }
    }

    fn idle_reason(&self, now: Moment) -> String {
        let one = self.load.one();
        match &self.touch {
            Some(touch) => format!("no input for {}, load {one:.2}", Spoken(now.since(touch.at))),
            None => format!("no input seen, load {one:.2}"),
        }
    }
}

/// Parts of a reason come from other programs: without control characters,
/// which a terminal would obey, and no longer than a record may hold.
pub(super) fn spoken_safely(text: String) -> String {
    let mut text =
        if text.contains(char::is_control) { text.replace(char::is_control, "?") } else { text };
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}
