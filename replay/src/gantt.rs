//! One execution as a picture: who ran where, when owners were there, who
//! moved, and who wrote to whom.

use gleaner_figure::{Arrow, Axis, Bar, Colour, Gantt, GanttKind, Shade};

use crate::{Lab, Observed, What};

/// More messages than this are a carpet; then only some are drawn.
const MESSAGES_MAX: usize = 400;

const RUNNING: usize = 0;
const DEMOTED: usize = 1;
const FROZEN: usize = 2;
const MOVING: usize = 3;

const MESSAGE: usize = 0;
const MOVE: usize = 1;

/// Draws what was observed of an execution. `name` says what a workstation of
/// the lab is called.
pub fn gantt(title: &str, lab: &Lab, observed: &[Observed], name: impl Fn(u32) -> String) -> Gantt {
    let ranks = observed.iter().map(|one| one.rank as usize + 1).max().unwrap_or(0);
    let mut tracks: Vec<Track> = (0..ranks).map(|_| Track::default()).collect();
    let mut messages = Messages::default();
    for one in observed {
        tracks[one.rank as usize].follow(*one);
        messages.follow(*one);
    }
    let end = tracks.iter().flat_map(|track| &track.stays).map(|stay| stay.to).max().unwrap_or(0);
    let lanes = u32::try_from(lab.workstations()).unwrap_or(u32::MAX);
    let (arrows, drawn, sent) = messages.arrows(&tracks);
    let moves = tracks.iter().flat_map(|track| &track.moves).copied();
    let subtitle =
        if drawn < sent { format!("{drawn} of {sent} messages are drawn") } else { String::new() };
    Gantt {
        title: title.to_owned(),
        subtitle,
        time_axis: Axis::linear("time (s)").from_to(0.0, seconds(end).max(1e-3)),
        lanes: (0..lanes).map(name).collect(),
        bar_kinds: vec![
            GanttKind::new("rank", Colour(0, 114, 178)),
            GanttKind::new("demoted", Colour(86, 180, 233)),
            GanttKind::new("frozen", Colour(204, 121, 167)),
            GanttKind::new("on its way in", Colour(230, 159, 0)),
        ],
        bars: bars(&tracks),
        arrow_kinds: vec![
            GanttKind::new("message", Colour(120, 120, 120)),
            GanttKind::new("move", Colour(213, 94, 0)),
        ],
        arrows: arrows.into_iter().chain(moves.map(Move::arrow)).collect(),
        shade_kinds: vec![GanttKind::new("owner busy", Colour(214, 214, 214))],
        shades: shades(lab, end),
    }
}

/// A rank on a workstation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stay {
    workstation: u32,
    from: u64,
    to: u64,
    kind: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Move {
    from: (u32, u64),
    to: (u32, u64),
}

impl Move {
    fn arrow(self) -> Arrow {
        let place = |(workstation, at): (u32, u64)| (workstation as usize, seconds(at));
        Arrow { from: place(self.from), to: place(self.to), kind: MOVE }
    }
}

/// Where a rank has been.
#[derive(Debug, Default)]
struct Track {
    stays: Vec<Stay>,
    moves: Vec<Move>,
    /// Where it is, since when and how.
    now: Option<Stay>,
    /// Where it was last, and until when.
    left: Option<(u32, u64)>,
}

impl Track {
    fn follow(&mut self, one: Observed) {
        match one.what {
            What::Began { workstation } => self.stay(workstation, one.at, RUNNING),
            What::Waits | What::Finished => self.leave(one.at),
            What::Froze => self.change(one.at, FROZEN),
            What::WasDemoted => self.change(one.at, DEMOTED),
            What::Resumed => self.change(one.at, RUNNING),
            What::Moves { to, .. } => {
                self.leave(one.at);
                self.stay(to, one.at, MOVING);
            }
            What::Arrived { workstation } => {
                if let (Some(from), Some(now)) = (self.left, self.now) {
                    self.moves.push(Move { from, to: (now.workstation, one.at) });
                }
                self.end(one.at);
                self.stay(workstation, one.at, RUNNING);
            }
            What::OwnerReturned { .. }
            | What::Lost { .. }
            | What::Sent { .. }
            | What::Received { .. }
            | What::Spawned { .. } => {}
        }
    }

    fn stay(&mut self, workstation: u32, from: u64, kind: usize) {
        self.now = Some(Stay { workstation, from, to: from, kind });
    }

    fn end(&mut self, at: u64) -> Option<Stay> {
        let stay = Stay { to: at, ..self.now.take()? };
        if stay.to > stay.from {
            self.stays.push(stay);
        }
        Some(stay)
    }

    fn leave(&mut self, at: u64) {
        if let Some(stay) = self.end(at) {
            self.left = Some((stay.workstation, at));
        }
    }

    fn change(&mut self, at: u64, kind: usize) {
        if let Some(stay) = self.end(at) {
            self.stay(stay.workstation, at, kind);
        }
    }

    /// Where it is at a moment, or was last before.
    fn place(&self, at: u64) -> Option<u32> {
        let after = self.stays.partition_point(|stay| stay.from <= at);
        let stay = self.stays.get(after.saturating_sub(1))?;
        Some(stay.workstation)
    }
}

/// Who sent and who received each message, and when.
#[derive(Debug, Default)]
struct Messages {
    sent: std::collections::BTreeMap<u32, (u32, u64)>,
    received: Vec<(u32, u32, u64)>,
}

impl Messages {
    fn follow(&mut self, one: Observed) {
        if let What::Sent { message } = one.what {
            self.sent.insert(message, (one.rank, one.at));
        } else if let What::Received { message } = one.what {
            self.received.push((message, one.rank, one.at));
        }
    }

    /// The arrows, how many they are, and how many messages there were.
    fn arrows(&self, tracks: &[Track]) -> (Vec<Arrow>, usize, usize) {
        let many = self.received.len();
        let every = many.div_ceil(MESSAGES_MAX).max(1);
        let arrow = |(message, to, received): &(u32, u32, u64)| {
            let (from, sent) = *self.sent.get(message)?;
            let place =
                |rank: u32, at| Some((tracks[rank as usize].place(at)? as usize, seconds(at)));
            // The arrow ends when the message arrives: a late receive is the
            // receiver's business.
            let arrives = sent.max(*received);
            Some(Arrow { from: place(from, sent)?, to: place(*to, arrives)?, kind: MESSAGE })
        };
        let arrows: Vec<Arrow> = self.received.iter().step_by(every).filter_map(arrow).collect();
        let drawn = arrows.len();
        (arrows, drawn, many)
    }
}

fn bars(tracks: &[Track]) -> Vec<Bar> {
    let of = |(rank, track): (usize, &Track)| {
        let bar = move |stay: &Stay| Bar {
            lane: stay.workstation as usize,
            start: seconds(stay.from),
            end: seconds(stay.to),
            kind: stay.kind,
            label: rank.to_string(),
        };
        track.stays.iter().map(bar).collect::<Vec<_>>()
    };
    tracks.iter().enumerate().flat_map(of).collect()
}

fn shades(lab: &Lab, end: u64) -> Vec<Shade> {
    let mut shades = vec![];
    for (lane, periods) in lab.busy_periods().iter().enumerate() {
        for (from, to) in periods {
            let (start, end) = (from.as_secs_f64(), to.as_secs_f64().min(seconds(end)));
            if start < end {
                shades.push(Shade { lane, start, end, kind: 0 });
            }
        }
    }
    shades
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
