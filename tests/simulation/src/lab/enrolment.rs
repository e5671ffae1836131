//! Newcomers: machines that enrol by tokens, get new keys and are taken out again, while
//! the coordinator dies, its disk hangs or goes back, and answers are lost. They do
//! nothing else: what a workstation is for, the hosts do.
//!
//! ```text
//! newcomer, or an admin ── Question ──► Directory ── records ──► store ── Reply ──► who asked
//!            ▲                          (memory)                             │ lost: asked again
//!            └───────────────────────────────────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::time::WallTime;
use gleaner_common::wire::Role;
use gleaner_coordinator_core::directory::{
    Directory, DirectoryRecord, IdentityRecord, Key, KeyStanding, TokenRecord,
};
use gleaner_coordinator_core::{Event, Step};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::coordinator::Pending;
use super::invariant::holds;
use super::network::delay;
use super::setting::Setting;
use super::{Happening, Lab};

/// How long a token is open, and how long whoever asks waits for an answer.
const TOKEN_LIFE: Duration = Duration::from_secs(1_800);
const PATIENCE: Duration = Duration::from_secs(10);

/// What somebody asks of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    /// An admin: a token with this key, for whatever name or for the newcomer's.
    Token {
        key: Key,
        named: bool,
    },
    Enrol {
        token: Key,
        key: Key,
    },
    Rotate {
        old: Key,
        new: Key,
        at_once: bool,
    },
    /// An admin: the workstation is no more.
    Remove,
}

/// What became of a question, once that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    newcomer: usize,
    asked: u64,
    question: Question,
    /// The identity, where there is one; or it was refused.
    done: Result<Option<IdentityRecord>, String>,
}

/// What is to happen about newcomers.
#[derive(Debug)]
pub(crate) enum Enrols {
    /// One of them does something.
    Acts,
    /// A question arrives: of whom, and which of theirs it is.
    Asked(usize, u64),
    Answered(Box<Reply>),
}

/// A machine, as itself and its admin know it.
#[derive(Clone, Debug)]
struct Newcomer {
    name: String,
    token: Option<Key>,
    /// Which it has used, if somebody else were to find it.
    spent: Option<Key>,
    key: Option<Key>,
    /// Those that it has had before, which somebody may find on its disk.
    former: Vec<Key>,
    /// What was asked and is not answered, and which of all its questions that is.
    open: Option<Question>,
    asked: u64,
}

/// A key that somebody was told is good.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    workstation: WorkstationId,
    expires: Option<WallTime>,
}

/// What was said of keys, tokens and numbers, and must hold from then on.
#[derive(Debug, Default)]
struct Said {
    good: BTreeMap<Key, Known>,
    bad: BTreeSet<Key>,
    /// The keys that tokens have let in.
    let_in: BTreeMap<Key, Key>,
    numbers: BTreeMap<WorkstationId, String>,
    /// Whose keys may have been taken away: that was asked, and nobody has heard.
    doubtful: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Enrolment {
    rng: SmallRng,
    /// How long certificates are good.
    life: Duration,
    /// The coordinator's memory.
    directory: Option<Directory>,
    newcomers: Vec<Newcomer>,
    most: usize,
    said: Said,
    keys: u32,
    /// The latest that the coordinator's clock has shown: what had run out then may be
    /// forgotten, wherever that jumps.
    latest: WallTime,
    /// How many were let in, and how many were taken out.
    pub(crate) counts: (u64, u64),
}

impl Enrolment {
    pub(super) fn new(seed: u64, setting: &Setting) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5EED_E270);
        let short = Duration::from_secs(rng.random_range(600..=7_200));
        let life = if rng.random_bool(0.5) { short } else { 90 * Duration::from_secs(86_400) };
        Self {
            rng,
            life,
            directory: None,
            newcomers: vec![],
            most: setting.newcomers as usize,
            said: Said::default(),
            keys: 0,
            latest: WallTime(0),
            counts: (0, 0),
        }
    }

    /// A key that nobody has had.
    fn key(&mut self) -> Key {
        self.keys += 1;
        let prefix = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];
        let mut key = prefix.to_vec();
        key.extend([self.keys.to_be_bytes(); 8].concat());
        key
    }

    pub(super) fn coordinator_starts(&mut self, records: impl Iterator<Item = DirectoryRecord>) {
        let directory = Directory::restore(records).with_certificate_life(self.life);
        self.directory = Some(directory);
    }

    pub(super) fn coordinator_dies(&mut self) {
        self.directory = None;
    }

    /// The store went back: what was said since is not known to it.
    pub(super) fn store_went_back(&mut self, kept: &[DirectoryRecord], is_marked: bool) {
        let identity = |key: &Key| {
            kept.iter().find_map(|record| {
                let DirectoryRecord::Identity { key: of, identity } = record else { return None };
                (of == key).then_some(identity)
            })
        };
        let said = &mut self.said;
        said.good.retain(|key, _| identity(key).is_some_and(|it| it.revoked.is_none()));
        said.bad.retain(|key| identity(key).is_none_or(|it| it.revoked.is_some()));
        if is_marked {
            return;
        }
        let used = |of: &Key| {
            kept.iter().any(|record| {
                let DirectoryRecord::Token { key, token } = record else { return false };
                key == of && token.used_by.is_some()
            })
        };
        said.let_in.retain(|token, _| used(token));
        let numbers: BTreeSet<_> = kept.iter().filter_map(DirectoryRecord::workstation).collect();
        said.numbers.retain(|number, _| numbers.contains(number));
    }
}

impl Lab {
    pub(super) fn newcomers_come(&mut self) {
        if self.enrolment.most > 0 {
            self.plan(Duration::ZERO, Happening::Enrols(Enrols::Acts));
        }
    }

    pub(super) fn enrols(&mut self, what: Enrols) {
        match what {
            Enrols::Acts => {
                let (often, rare) = if self.quiet { (60.0, 1_200.0) } else { (0.5, 20.0) };
                let gap = self.enrolment.rng.random_range(often..rare);
                self.plan(Duration::from_secs_f64(gap), Happening::Enrols(Enrols::Acts));
                self.a_newcomer_acts();
            }
            Enrols::Asked(newcomer, asked) => self.newcomer_asks(newcomer, asked),
            Enrols::Answered(reply) => self.newcomer_hears(*reply),
        }
    }

    fn a_newcomer_acts(&mut self) {
        let enrolment = &mut self.enrolment;
        let count = enrolment.newcomers.len();
        if count < enrolment.most && (count == 0 || enrolment.rng.random_bool(0.2)) {
            let name = format!("new{count}");
            let (token, spent, key, former) = (None, None, None, vec![]);
            let newcomer = Newcomer { name, token, spent, key, former, open: None, asked: 0 };
            enrolment.newcomers.push(newcomer);
        }
        let at = enrolment.rng.random_range(0..enrolment.newcomers.len());
        if enrolment.newcomers[at].open.is_some() {
            // Nobody has answered: it is asked once more.
            return self.send_question(at);
        }
        let newcomer = enrolment.newcomers[at].clone();
        let question = match (newcomer.key, newcomer.token) {
            (None, None) => {
                let named = enrolment.rng.random_bool(0.5);
                Some(Question::Token { key: enrolment.key(), named })
            }
            (None, Some(token)) => Some(Question::Enrol { token, key: enrolment.key() }),
            (Some(key), _) => match enrolment.rng.random_range(0..20) {
                0..4 => {
                    let (new, at_once) = (enrolment.key(), enrolment.rng.random_bool(0.3));
                    Some(Question::Rotate { old: key, new, at_once })
                }
                4 => Some(Question::Remove),
                _ => {
                    if self.gets_in(at, &key) == Some(false) {
                        self.enrolment.newcomers[at].goes_without();
                    }
                    None
                }
            },
        };
        self.somebody_tries(at, &newcomer.former, newcomer.spent);
        if question.is_some() {
            let newcomer = &mut self.enrolment.newcomers[at];
            newcomer.open = question;
            newcomer.asked += 1;
            self.send_question(at);
        }
    }

    fn send_question(&mut self, at: usize) {
        let (lost, after) = self.enrolment_takes();
        if !lost {
            let asked = self.enrolment.newcomers[at].asked;
            self.plan(after, Happening::Enrols(Enrols::Asked(at, asked)));
        }
    }

    fn enrolment_takes(&mut self) -> (bool, Duration) {
        let (calm, late) = (self.calm, self.setting.late_frames);
        let rng = &mut self.enrolment.rng;
        let lost = !calm && rng.random_bool(0.1);
        let takes = delay(rng, (!calm).then_some(late));
        (lost || takes > PATIENCE, takes)
    }

    /// A key of it is shown to the coordinator, if that is there: is it good?
    fn gets_in(&mut self, at: usize, key: &Key) -> Option<bool> {
        let wall = self.wall();
        let enrolment = &mut self.enrolment;
        enrolment.latest = enrolment.latest.max(wall);
        let latest = enrolment.latest;
        let directory = enrolment.directory.as_ref()?;
        let (standing, said) = (directory.standing(key, wall), &enrolment.said);
        let is_in =
            if let KeyStanding::Enrolled(identity) = &standing { Some(identity) } else { None };
        let name = &enrolment.newcomers[at].name;
        let is_bad = said.bad.contains(key);
        let is_well = !is_bad || is_in.is_none();
        holds!(
            Admission,
            is_well,
            "a key of {name} was revoked, and is good: {key:?} is {standing:?}"
        );
        let is_doubtful = said.doubtful.contains(name);
        if let Some(known) = said.good.get(key).filter(|_| !is_doubtful) {
            let has_run_out = known.expires.is_some_and(|expires| expires <= latest);
            let is_same = is_in.is_some_and(|it| {
                it.name == known.name && it.workstation == Some(known.workstation)
            });
            holds!(
                AcknowledgedDurable,
                has_run_out || is_same,
                "{name} has a key that is good, and is {standing:?}"
            );
        }
        Some(is_in.is_some())
    }

    /// Whoever finds a key of before, or a token that was used.
    fn somebody_tries(&mut self, at: usize, former: &[Key], token: Option<Key>) {
        if let Some(found) = former.choose(&mut self.enrolment.rng) {
            self.gets_in(at, found);
        }
        let (wall, key) = (self.wall(), self.enrolment.key());
        let Enrolment { directory, said, .. } = &mut self.enrolment;
        let token = token.filter(|token| said.let_in.contains_key(token));
        let (Some(token), Some(directory)) = (token, directory) else { return };
        let let_in = directory.enrol(&token, key, "stranger", wall);
        holds!(Admission, let_in.is_err(), "a token that was used lets another in");
    }

    // ── the coordinator ────────────────────────────────────────────────────

    fn newcomer_asks(&mut self, newcomer: usize, asked: u64) {
        let wall = self.wall();
        let enrolment = &mut self.enrolment;
        enrolment.latest = enrolment.latest.max(wall);
        let asks = &enrolment.newcomers[newcomer];
        // Who asks again has hung up before.
        let question = asks.open.clone().filter(|_| asks.asked == asked);
        let (Some(question), Some(directory)) = (question, &mut enrolment.directory) else {
            return;
        };
        let name = asks.name.clone();
        let (mut step, mut records) = (Step::default(), vec![]);
        let done = match &question {
            Question::Token { key, named } => {
                let expires = WallTime(wall.0 + i64::try_from(TOKEN_LIFE.as_nanos()).unwrap_or(0));
                let token = TokenRecord {
                    id: format!("{name}-{asked}"),
                    role: Role::Agent,
                    name: named.then(|| name.clone()),
                    expires,
                    used_by: None,
                    revoked: false,
                };
                let opened = directory.open_token(key.clone(), token, wall);
                opened.map_err(|error| error.to_string()).map(|record| {
                    records.push(record);
                    None
                })
            }
            Question::Enrol { token, key } => {
                let enrolled = directory.enrol(token, key.clone(), &name, wall);
                enrolled.map_err(|error| error.to_string()).map(|enrolled| {
                    records.extend(enrolled.records);
                    Some(enrolled.identity)
                })
            }
            Question::Rotate { old, .. }
                if !matches!(directory.standing(old, wall), KeyStanding::Enrolled(_)) =>
            {
                Err("it does not get in".to_owned())
            }
            Question::Rotate { old, new, at_once } => {
                let rotated = directory.rotate(old, new.clone(), *at_once, wall);
                rotated.map_err(|error| error.to_string()).map(|(identity, changed)| {
                    records.extend(changed);
                    Some(identity)
                })
            }
            Question::Remove => match directory.remove_workstation(&name, wall) {
                Some((_, changed)) => {
                    records.extend(changed);
                    Ok(None)
                }
                None => Err("there is no such workstation".to_owned()),
            },
        };
        enrolment.said.doubtful.insert(name.clone());
        let enrolled = done.as_ref().ok().and_then(Option::as_ref).and_then(|it| it.workstation);
        let event = match (&question, enrolled) {
            (Question::Enrol { .. }, Some(workstation)) => {
                Some(Event::Enrolled { workstation, name })
            }
            (Question::Remove, _) => records.iter().find_map(|record| {
                let DirectoryRecord::WorkstationRemoved { workstation } = record else {
                    return None;
                };
                Some(Event::Removed(*workstation))
            }),
            _ => None,
        };
        if let (Some(event), Some(core)) = (event, &mut self.core) {
            step = core.handle(self.clock.reads(self.now), wall, event);
            self.check_step(&step);
        }
        let reply = Reply { newcomer, asked, question, done };
        self.waits_for_the_disk(Pending { step, records, reply: Some(reply) });
    }

    /// It is kept, and leaves.
    pub(super) fn enrolment_replies(&mut self, reply: Reply) {
        let is_kept = |key: &Key| {
            self.store.directory().any(
                |record| matches!(record, DirectoryRecord::Identity { key: of, .. } if of == key),
            )
        };
        let Reply { newcomer, question, done, .. } = &reply;
        let name = self.enrolment.newcomers[*newcomer].name.clone();
        let said = &mut self.enrolment.said;
        said.doubtful.remove(&name);
        let taken_out = |said: &mut Said, which: &dyn Fn(&Key, &Known) -> bool| {
            let out = said.good.extract_if(.., |key, known| which(key, known)).map(|(key, _)| key);
            let out: Vec<Key> = out.collect();
            said.bad.extend(out);
        };
        match (question, done) {
            (Question::Enrol { token, key }, Ok(Some(identity))) => {
                holds!(AcknowledgedDurable, is_kept(key), "{name} is enrolled, and not kept");
                let first = said.let_in.entry(token.clone()).or_insert_with(|| key.clone());
                holds!(
                    Admission,
                    first == key,
                    "a token has let two keys in, the second of {name}"
                );
                taken_out(said, &|of, known| known.name == name && of != key);
                said.learn(key, identity);
                self.enrolment.counts.0 += 1;
            }
            (Question::Rotate { old, new, at_once }, Ok(Some(identity))) => {
                holds!(AcknowledgedDurable, is_kept(new), "{name} has a new key that is not kept");
                if *at_once {
                    taken_out(said, &|of, _| of == old);
                    said.bad.insert(old.clone());
                }
                said.learn(new, identity);
            }
            (Question::Remove, _) => {
                taken_out(said, &|_, known| known.name == name);
                self.enrolment.counts.1 += 1;
            }
            // Perhaps it was done before, and nobody has heard of that.
            (Question::Rotate { old, at_once: true, .. }, Err(_)) => drop(said.good.remove(old)),
            (Question::Token { .. } | Question::Enrol { .. } | Question::Rotate { .. }, _) => {}
        }
        let (lost, after) = self.enrolment_takes();
        if !lost {
            self.plan(after, Happening::Enrols(Enrols::Answered(Box::new(reply))));
        }
    }

    fn newcomer_hears(&mut self, reply: Reply) {
        let Reply { newcomer, asked, question, done } = reply;
        let newcomer = &mut self.enrolment.newcomers[newcomer];
        if newcomer.asked != asked || newcomer.open.take().is_none() {
            return;
        }
        match (question, done) {
            (Question::Token { key, .. }, Ok(_)) => newcomer.token = Some(key),
            (Question::Enrol { token, key }, Ok(_)) => {
                newcomer.spent = Some(token);
                (newcomer.token, newcomer.key) = (None, Some(key));
            }
            (Question::Rotate { new, .. }, Ok(_)) => {
                newcomer.goes_without();
                newcomer.key = Some(new);
            }
            // Too soon, or the answer to its last question was lost: a handshake tells.
            (Question::Rotate { .. } | Question::Token { .. }, Err(_)) => {}
            (Question::Enrol { .. }, Err(_)) => newcomer.token = None,
            (Question::Remove, _) => newcomer.goes_without(),
        }
    }
}

impl Newcomer {
    /// Its key is not good any more, or another takes its place.
    fn goes_without(&mut self) {
        self.former.extend(self.key.take());
        self.token = None;
    }
}

impl Said {
    fn learn(&mut self, key: &Key, identity: &IdentityRecord) {
        let (name, expires) = (identity.name.clone(), identity.expires);
        let workstation = identity.workstation.expect("agents have a workstation");
        let owner = self.numbers.entry(workstation).or_insert_with(|| name.clone());
        holds!(Admission, *owner == name, "{workstation} is {name}'s, and was {owner}'s");
        self.good.insert(key.clone(), Known { name, workstation, expires });
    }
}
