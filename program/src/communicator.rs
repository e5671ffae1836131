//! A rank's view of its program: who it is, and messages to and from others.
//!
//! Knows nothing of how messages travel (`transport`); collectives, the task
//! bag and checkpoints are in files of their own.

use std::collections::BTreeMap;
use std::ops::Range;

use gleaner_common::trace::{COLLECTIVE_TAGS, Op};

use crate::cpu::CpuClock;
use crate::error::{Awaited, Ending, Error};
use crate::mailbox::{Mailbox, Message, Ticket, Wanted};
use crate::offers::Offers;
use crate::record::Recorder;
use crate::transport::{Beginning, Event, Order, Transport};
use crate::value::{Value, from_bytes, to_bytes};

/// Any sender, or any tag.
pub const ANY: Option<u32> = None;
/// The largest tag of the program's own messages.
pub const TAG_MAX: u32 = COLLECTIVE_TAGS - 1;

/// What a rank does when its workstation is wanted back.
pub(crate) type RetreatHandler = Box<dyn FnOnce(&mut Communicator) -> Result<(), Error> + Send>;

/// A receive that was begun: [`Communicator::wait`] gives its message.
#[derive(Debug)]
#[must_use = "its message would be lost"]
pub struct Receiving {
    ticket: Ticket,
    wanted: Wanted,
}

/// A send that was begun.
#[derive(Debug)]
pub struct Sending {
    order: u64,
}

/// May this rank still call?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Here,
    /// In its retreat handler.
    Retreating,
    Retreated,
    Left,
}

/// One rank's way to the others. Calls that wait say what they waited for when
/// it can never come.
pub struct Communicator {
    transport: Box<dyn Transport>,
    pub(crate) beginning: Beginning,
    size: u32,
    mailbox: Mailbox,
    gone: BTreeMap<u32, Ending>,
    recorder: Option<Recorder>,
    orders: u64,
    /// Messages to itself that have not come yet.
    to_itself: u64,
    /// The rank has begun with a state that it saved, and may have sent others before.
    restored: bool,
    pub(crate) standing: Standing,
    pub(crate) save_asked: bool,
    pub(crate) retreat_asked: bool,
    pub(crate) retreat_handler: Option<RetreatHandler>,
    pub(crate) offers: Offers,
}

impl Communicator {
    /// On the rank's own thread; with a clock, what it computes from here on
    /// is recorded.
    pub fn new(
        transport: Box<dyn Transport>,
        beginning: Beginning,
        record: Option<CpuClock>,
    ) -> Self {
        Self {
            transport,
            size: beginning.members.end,
            mailbox: Mailbox::default(),
            gone: BTreeMap::new(),
            recorder: record.map(Recorder::start),
            orders: 0,
            to_itself: 0,
            restored: beginning.state.is_some(),
            beginning,
            standing: Standing::Here,
            save_asked: false,
            retreat_asked: false,
            retreat_handler: None,
            offers: Offers::default(),
        }
    }

    pub fn rank(&self) -> u32 {
        self.beginning.rank
    }

    /// How many ranks the program has, as far as this one has heard: more
    /// once ranks were spawned.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The ranks that began together with this one.
    pub fn members(&self) -> Range<u32> {
        self.beginning.members.clone()
    }

    /// Who spawned this rank, if it did not begin with the program.
    pub fn parent(&self) -> Option<u32> {
        self.beginning.parent
    }

    /// Sends a message. Waits at most until there is room for it on the way,
    /// never for its receiver.
    ///
    /// # Errors
    /// No such rank or tag.
    pub fn send(&mut self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.call(|this| {
            check_tag(tag)?;
            this.send_now(to, tag, bytes)
        })
    }

    /// Receives a message, of any sender or tag where [`ANY`] is given.
    ///
    /// # Errors
    /// No such rank or tag; its sender is gone, or all ranks wait.
    pub fn recv(
        &mut self,
        from: impl Into<Option<u32>>,
        tag: impl Into<Option<u32>>,
    ) -> Result<Message, Error> {
        let wanted = Wanted { from: from.into(), tag: tag.into() };
        wanted.tag.map_or(Ok(()), check_tag)?;
        self.receive(wanted)
    }

    /// Begins to send, and does not wait for room.
    ///
    /// # Errors
    /// No such rank or tag.
    pub fn isend(&mut self, to: u32, tag: u32, bytes: &[u8]) -> Result<Sending, Error> {
        self.call(|this| {
            check_tag(tag)?;
            this.begin_send(to, tag, bytes.to_vec())
        })
    }

    /// Begins to receive: posts the wish for a message. Of those that fit, the
    /// wish posted first gets the message that came first.
    ///
    /// # Errors
    /// No such rank or tag.
    pub fn irecv(
        &mut self,
        from: impl Into<Option<u32>>,
        tag: impl Into<Option<u32>>,
    ) -> Result<Receiving, Error> {
        let wanted = Wanted { from: from.into(), tag: tag.into() };
        self.call(|this| {
            wanted.tag.map_or(Ok(()), check_tag)?;
            this.begin_receive(wanted)
        })
    }

    /// Has the message come? Then `wait` will not wait.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn test(&mut self, receiving: &Receiving) -> Result<bool, Error> {
        self.call(|this| Ok(this.mailbox.has(receiving.ticket)))
    }

    /// Waits for the message of a receive that was begun.
    ///
    /// # Errors
    /// The sender is gone, or all ranks wait.
    pub fn wait(&mut self, receiving: Receiving) -> Result<Message, Error> {
        self.call(|this| this.finish_receive(receiving))
    }

    /// Waits for all of them; the messages are in the order of the receives.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_all(&mut self, all: Vec<Receiving>) -> Result<Vec<Message>, Error> {
        all.into_iter().map(|receiving| self.wait(receiving)).collect()
    }

    /// Gives up a receive, and its message with it if that has come.
    #[expect(clippy::needless_pass_by_value, reason = "a receive ends once")]
    pub fn withdraw(&mut self, receiving: Receiving) {
        if let Some(message) = self.mailbox.withdraw(receiving.ticket) {
            // If the other end is gone, the next call says so.
            let _ = self.transport.received(&message);
        }
    }

    /// Waits until a rank has ended, a spawned one for instance, and says how.
    /// What it has sent can still be received.
    ///
    /// # Errors
    /// No such rank; all ranks wait.
    pub fn join(&mut self, rank: u32) -> Result<Ending, Error> {
        self.call(|this| {
            this.check_rank(rank)?;
            let awaited = Awaited::End { rank };
            if rank == this.rank() {
                return Err(Error::Deadlock { waiting: vec![(rank, awaited)] });
            }
            loop {
                if let Some(ending) = this.gone.get(&rank) {
                    return Ok(ending.clone());
                }
                let event = this.transport.wait(awaited)?;
                this.absorb(event)?;
                this.heed_retreat()?;
            }
        })
    }

    /// Takes in what has come, and does nothing else: for a rank that computes
    /// for long, so that it hears of a retreat in time.
    ///
    /// # Errors
    /// This rank was asked to retreat; the other ranks cannot be reached any
    /// more.
    pub fn heed(&mut self) -> Result<(), Error> {
        self.call(|_| Ok(()))
    }

    /// Is the message on its way, and its buffer free?
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn test_sent(&mut self, sending: &Sending) -> Result<bool, Error> {
        let order = sending.order;
        self.call(|this| Ok(this.transport.accepted(order, false)? >= order))
    }

    /// Waits until the message is on its way.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn wait_sent(&mut self, sending: &Sending) -> Result<(), Error> {
        let order = sending.order;
        self.call(|this| this.transport.accepted(order, true).map(|_| ()))
    }

    /// Sends numbers; [`Self::recv_values`] gives them back.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_values<T: Value>(&mut self, to: u32, tag: u32, values: &[T]) -> Result<(), Error> {
        check_tag(tag)?;
        self.send_tagged(to, tag, values)
    }

    /// Receives numbers.
    ///
    /// # Errors
    /// As [`Self::recv`]; a message that is not a whole number of them.
    pub fn recv_values<T: Value>(
        &mut self,
        from: impl Into<Option<u32>>,
        tag: u32,
    ) -> Result<Vec<T>, Error> {
        check_tag(tag)?;
        self.recv_tagged(from.into(), tag)
    }

    /// Takes any tag, a collective's too.
    pub(crate) fn send_tagged<T: Value>(
        &mut self,
        to: u32,
        tag: u32,
        values: &[T],
    ) -> Result<(), Error> {
        self.call(|this| this.send_now(to, tag, &to_bytes(values)))
    }

    /// Takes any tag, a collective's too.
    pub(crate) fn recv_tagged<T: Value>(
        &mut self,
        from: Option<u32>,
        tag: u32,
    ) -> Result<Vec<T>, Error> {
        let message = self.receive(Wanted { from, tag: Some(tag) })?;
        from_bytes(&message.bytes).ok_or(Error::NotWholeValues {
            from: message.from,
            bytes: message.bytes.len(),
            unit: T::BYTES,
        })
    }

    /// The rank's function has ended: lets what is on its way leave.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let unreceived: Vec<&Message> = self.mailbox.unreceived().collect();
        self.transport.finish(&unreceived, self.standing == Standing::Retreated)
    }

    /// Ends the rank's recording, if there is one.
    pub(crate) fn into_recorded(self) -> Option<Vec<Op>> {
        self.recorder.map(Recorder::finish)
    }

    /// Round every call: what the rank computed before it is recorded, what
    /// came meanwhile is taken in.
    pub(crate) fn call<T>(
        &mut self,
        carry_out: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.call_unheard(|this| this.catch_up().and_then(|()| carry_out(this)))
    }

    /// As [`Self::call`], for a call that looks by itself for what came.
    fn call_unheard<T>(
        &mut self,
        carry_out: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(recorder) = &mut self.recorder {
            recorder.enter();
        }
        let result = match self.standing {
            Standing::Here | Standing::Retreating => carry_out(self),
            Standing::Retreated => Err(Error::Retreated),
            Standing::Left => Err(Error::Left),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.leave();
        }
        result
    }

    fn catch_up(&mut self) -> Result<(), Error> {
        while let Some(event) = self.transport.poll()? {
            self.absorb(event)?;
        }
        self.look_at_offer()?;
        self.heed_retreat()
    }

    pub(crate) fn order(&mut self, order: Order) -> Result<(), Error> {
        self.orders += 1;
        self.transport.order(order)
    }

    pub(crate) fn note(&mut self, op: Op) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(op);
        }
    }

    fn begin_send(&mut self, to: u32, tag: u32, bytes: Vec<u8>) -> Result<Sending, Error> {
        self.note_send(to, tag, bytes.len())?;
        self.order(Order::Send { to, tag, bytes })?;
        Ok(Sending { order: self.orders })
    }

    fn send_now(&mut self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.note_send(to, tag, bytes.len())?;
        self.orders += 1;
        self.transport.send(self.orders, to, tag, bytes)
    }

    fn note_send(&mut self, to: u32, tag: u32, bytes: usize) -> Result<(), Error> {
        self.check_rank(to)?;
        self.note(Op::Send { to, bytes: bytes as u64, tag });
        self.to_itself += u64::from(to == self.rank());
        Ok(())
    }

    fn begin_receive(&mut self, wanted: Wanted) -> Result<Receiving, Error> {
        wanted.from.map_or(Ok(()), |from| self.check_rank(from))?;
        Ok(Receiving { ticket: self.mailbox.post(wanted), wanted })
    }

    /// Who has to wait hears of all else with its message.
    fn receive(&mut self, wanted: Wanted) -> Result<Message, Error> {
        self.call_unheard(|this| {
            let is_known = wanted.from.is_none_or(|from| from < this.size);
            if this.mailbox.offers(wanted) || !is_known || this.hopeless(wanted).is_some() {
                this.catch_up()?;
            } else {
                this.heed_retreat()?;
            }
            let receiving = this.begin_receive(wanted)?;
            this.finish_receive(receiving)
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "a receive ends once")]
    fn finish_receive(&mut self, receiving: Receiving) -> Result<Message, Error> {
        let Receiving { ticket, wanted } = receiving;
        loop {
            if let Some(message) = self.mailbox.take(ticket) {
                self.note(Op::Receive { from: message.from, tag: message.tag });
                self.transport.received(&message)?;
                return Ok(message);
            }
            if let Some(error) = self.hopeless(wanted) {
                self.mailbox.withdraw(ticket);
                return Err(error);
            }
            let event = self.transport.wait(Awaited::Message(wanted))?;
            self.absorb(event)?;
            self.heed_retreat()?;
        }
    }

    /// Why no message of this kind will ever come, if so.
    fn hopeless(&self, wanted: Wanted) -> Option<Error> {
        let alone = |rank| rank == self.rank();
        if (self.to_itself > 0 || self.restored) && wanted.from.is_none_or(alone) {
            return None;
        }
        let gone = |(&rank, ending): (&u32, &Ending)| Error::PeerGone {
            rank,
            ending: ending.clone(),
            wanted,
        };
        match wanted.from {
            Some(from) if alone(from) => Some(self.waits_for_itself(wanted)),
            Some(from) => self.gone.get_key_value(&from).map(gone),
            None if self.size == 1 => Some(self.waits_for_itself(wanted)),
            None if self.gone.len() + 1 < self.size as usize => None,
            // A peer that broke says more than one that has simply ended.
            None => {
                let broken = |(_, ending): &(&u32, &Ending)| {
                    matches!(ending, Ending::Failed(_) | Ending::Panicked(_))
                };
                self.gone.iter().find(broken).or(self.gone.last_key_value()).map(gone)
            }
        }
    }

    fn waits_for_itself(&self, wanted: Wanted) -> Error {
        Error::Deadlock { waiting: vec![(self.rank(), Awaited::Message(wanted))] }
    }

    /// Waits for the answer to an order.
    pub(crate) fn answer<T>(
        &mut self,
        awaited: Awaited,
        pick: impl Fn(Event) -> Result<T, Event>,
    ) -> Result<T, Error> {
        loop {
            let event = self.transport.wait(awaited)?;
            match pick(event) {
                Ok(answer) => return Ok(answer),
                Err(event) => self.absorb(event)?,
            }
            self.heed_retreat()?;
        }
    }

    fn absorb(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Message(message) => {
                if message.from == self.rank() {
                    self.to_itself = self.to_itself.saturating_sub(1);
                }
                self.mailbox.deliver(message);
            }
            Event::Gone { rank, ending } => {
                self.gone.insert(rank, ending);
            }
            Event::Grown { size } => self.size = self.size.max(size),
            Event::PleaseSave => self.save_asked = true,
            Event::Retreat => self.retreat_asked = true,
            // Asked for before the retreat, which took our attention away.
            Event::Task(Some(task)) => self.order(Order::ReturnTask(task.id))?,
            Event::Negotiate(said) => self.hear_offer(&said)?,
            Event::Task(None)
            | Event::TaskResult(_)
            | Event::Added(_)
            | Event::Spawned(_)
            | Event::Processors(_)
            | Event::Negotiated(_) => {}
        }
        Ok(())
    }

    /// Once, and not while the handler itself calls.
    fn heed_retreat(&mut self) -> Result<(), Error> {
        if !self.retreat_asked || self.standing != Standing::Here {
            return Ok(());
        }
        self.standing = Standing::Retreating;
        let handled = self.retreat_handler.take().map_or(Ok(()), |handler| handler(self));
        self.standing = Standing::Retreated;
        handled.and(Err(Error::Retreated))
    }

    fn check_rank(&self, rank: u32) -> Result<(), Error> {
        let size = self.size;
        if rank < size { Ok(()) } else { Err(Error::BadRank { rank, size }) }
    }
}

fn check_tag(tag: u32) -> Result<(), Error> {
    if tag <= TAG_MAX { Ok(()) } else { Err(Error::BadTag { tag }) }
}
