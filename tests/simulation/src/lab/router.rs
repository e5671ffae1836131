//! Routers: what carries ranks' messages, as far as agents know it.
//!
//! A router carries its agent's commands out in order, and answers in order, in
//! its own time.

use std::time::Duration;

use gleaner_agent_core::guest::{self, Exit, Start};
use gleaner_common::id::Fence;
use gleaner_common::reaction::Keep;
use gleaner_program_core::facts::End;
use rand::Rng;

use super::cuts::cut_frame;
use super::place::Payload;
use super::rank::{Endpoint, Image, Imaging, Packed, Script};
use super::{Lab, Local};

/// A command of an agent to its router.
#[derive(Debug)]
pub(crate) enum RouterCommand {
    Begin(Box<Start>),
    Exited { fence: Fence, end: End, stays: bool, exit: Box<Exit> },
    Dropped(Fence),
    Retreat { fence: Fence, within: Duration },
    Replug(Fence),
    Depart { fence: Fence, keep: Keep },
    Stayed(Fence),
    Image(Fence),
    Imaged { fence: Fence, image: Option<Image> },
    Arrive { start: Box<Start>, payload: Box<Payload> },
    SetGoing(Fence),
}

impl Lab {
    pub(super) fn command_router(&mut self, index: usize, command: RouterCommand) {
        let after = self.router_takes();
        let router = &mut self.hosts[index].router;
        router.told_until = router.told_until.max(self.now + after);
        let at = router.told_until;
        self.plan_here_at(index, at, Local::RouterCommand(command));
    }

    fn router_says(&mut self, index: usize, fence: Fence, event: guest::Event) {
        let after = self.router_takes();
        let router = &mut self.hosts[index].router;
        router.says_until = router.says_until.max(self.now + after);
        let at = router.says_until;
        self.plan_here_at(index, at, Local::RouterSays { fence, event: Box::new(event) });
    }

    fn router_takes(&mut self) -> Duration {
        let long = self.rng.random_bool(0.05);
        self.up_to(Duration::from_millis(if long { 500 } else { 2 }))
    }

    /// The agent hears it now.
    pub(super) fn router_said(&mut self, index: usize, fence: Fence, event: guest::Event) {
        if let Some(at) = self.hosts[index].place_of(fence) {
            let place = &mut self.hosts[index].places[at];
            let wants = matches!(event, guest::Event::ImageWanted);
            if wants || matches!(event, guest::Event::HasImage) {
                place.ordered.imaging = wants;
            }
        } else if matches!(event, guest::Event::ImageWanted) {
            return;
        }
        self.tell_guest(index, fence, event);
    }

    pub(super) fn router_takes_in(&mut self, index: usize, command: RouterCommand) {
        let router = &mut self.hosts[index].router;
        match command {
            RouterCommand::Begin(start) => self.rank_begins(index, &start),
            RouterCommand::Exited { fence, end, stays, exit } => {
                self.rank_exited(index, fence, end, stays, exit);
            }
            RouterCommand::Dropped(fence) => {
                router.fetching.remove(&fence);
                router.endpoints.remove(&fence);
            }
            RouterCommand::Retreat { fence, within } => {
                let Some(endpoint) = router.endpoints.get_mut(&fence) else { return };
                endpoint.retreating = true;
                // Some take too long, and some do not listen.
                let after = self.up_to(within * 2);
                if self.rng.random_bool(0.9) {
                    self.plan_here(index, after, Local::Returns(fence));
                }
            }
            RouterCommand::Replug(fence) => {
                let Some(endpoint) = router.endpoints.get_mut(&fence) else { return };
                (endpoint.plugged, endpoint.packed) = (true, false);
                (endpoint.retreating, endpoint.retreated) = (false, false);
                endpoint.script.begin_anew();
                self.rank_goes_on(index, fence);
            }
            RouterCommand::Depart { fence, keep } => {
                let packed = self.packed(index, fence, keep);
                self.router_packed(index, fence, packed);
            }
            RouterCommand::Stayed(fence) => {
                if let Some(endpoint) = router.endpoints.get_mut(&fence) {
                    endpoint.packed = false;
                    self.kick(index, fence);
                }
            }
            RouterCommand::Image(fence) => {
                let done = match router.endpoints.get_mut(&fence) {
                    Some(endpoint) if !endpoint.fault => {
                        endpoint.imaging = Imaging::Begun;
                        Ok(())
                    }
                    Some(_) => Err("it floods".to_owned()),
                    None => Err("there is no such rank here".to_owned()),
                };
                self.router_says(index, fence, guest::Event::PipesEmptied(done));
            }
            RouterCommand::Imaged { fence, image } => {
                let Some(endpoint) = router.endpoints.get_mut(&fence) else { return };
                let begun = std::mem::replace(&mut endpoint.imaging, Imaging::Nothing);
                if image.is_some() && begun == Imaging::Begun {
                    endpoint.image = image;
                }
            }
            RouterCommand::Arrive { start, payload } => {
                let done = self.unpack(index, &start, *payload);
                self.router_says(index, start.at.fence, guest::Event::Unpacked(done));
            }
            RouterCommand::SetGoing(fence) => self.set_going(index, fence),
        }
    }

    fn rank_begins(&mut self, index: usize, start: &Start) {
        let (fence, id) = (start.at.fence, start.subprogram);
        let rank = start.rank.as_ref().expect("only ranks begin");
        if rank.cut.is_some() {
            self.hosts[index].router.fetching.insert(fence);
            let after = self.up_to(Duration::from_secs(1));
            return self.plan_here(index, after, Local::Fetched(Box::new(start.clone())));
        }
        let (script, _) = self.script_of((id, fence), rank);
        if !self.hosts[index].router.is_over(id.job, rank.life) {
            self.hosts[index].router.endpoints.insert(fence, Endpoint::new(script));
            self.rank_goes_on(index, fence);
        }
    }

    /// A rank's part of a snapshot is here.
    pub(super) fn fetched(&mut self, index: usize, start: &Start) {
        let (fence, id) = (start.at.fence, start.subprogram);
        if !self.hosts[index].router.fetching.remove(&fence) {
            return;
        }
        let rank = start.rank.as_ref().expect("only ranks begin");
        let (script, image) = self.script_of((id, fence), rank);
        if image.is_some() {
            let packed = Some(Packed { script, image: image.clone() });
            let keep = Keep::SubtaskStart;
            let payload = Payload { keep, image, packed, runs: 0, before: [].into() };
            return self.has_image(index, fence, payload);
        }
        if !self.hosts[index].router.is_over(id.job, rank.life) {
            self.hosts[index].router.endpoints.insert(fence, Endpoint::new(script));
            self.rank_goes_on(index, fence);
        }
    }

    fn has_image(&mut self, index: usize, fence: Fence, payload: Payload) {
        if let Some(at) = self.hosts[index].place_of(fence) {
            let guest = self.hosts[index].places[at].guest.as_mut().expect("it is held");
            guest.snapshot = Some(payload);
        }
        self.router_says(index, fence, guest::Event::HasImage);
    }

    fn rank_exited(&mut self, index: usize, fence: Fence, end: End, stays: bool, exit: Box<Exit>) {
        let router = &mut self.hosts[index].router;
        router.fetching.remove(&fence);
        if router.endpoints.get(&fence).is_some_and(|it| it.arriving.is_some()) {
            router.endpoints.remove(&fence);
        }
        let (mut exit, mut settled) = (exit, false);
        if let Some(endpoint) = router.endpoints.get_mut(&fence) {
            endpoint.plugged = false;
            (endpoint.image, endpoint.imaging) = (None, Imaging::Nothing);
            settled = !endpoint.fault && (stays || endpoint.retreated);
            endpoint.retreating = false;
            if endpoint.fault {
                exit.outcome = gleaner_common::job::Outcome::Fault("it floods".to_owned());
            } else if !settled {
                endpoint.ended = Some(end);
                let said = endpoint.say(fence);
                let after = self.up_to(Duration::from_secs(20));
                self.plan_here(index, after, Local::Drains(fence));
                for frame in said {
                    self.send_up(index, frame);
                }
            }
        }
        self.router_says(index, fence, guest::Event::Exited { exit, stays: settled });
    }

    pub(super) fn drains(&mut self, index: usize, fence: Fence) {
        let Some(endpoint) = self.hosts[index].router.endpoints.get_mut(&fence) else { return };
        endpoint.drained = true;
        for frame in endpoint.say(fence) {
            self.send_up(index, frame);
        }
    }

    fn packed(&mut self, index: usize, fence: Fence, keep: Keep) -> Result<Packed, String> {
        let fails = keep != Keep::Nothing && self.obstacle(0.1);
        let endpoint = self.hosts[index].router.endpoints.get_mut(&fence);
        let endpoint = endpoint.ok_or("there is no such rank here")?;
        if endpoint.fault || fails {
            return Err("it floods".to_owned());
        }
        let image = if keep == Keep::SubtaskStart { endpoint.way_back()? } else { None };
        endpoint.packed = true;
        let mut script = endpoint.script.clone();
        if keep == Keep::Nothing {
            script.begin_anew();
        }
        Ok(Packed { script, image })
    }

    /// The container holds what was packed until it is carried.
    fn router_packed(&mut self, index: usize, fence: Fence, packed: Result<Packed, String>) {
        let after = self.router_takes();
        let router = &mut self.hosts[index].router;
        router.says_until = router.says_until.max(self.now + after);
        let at = router.says_until;
        self.plan_here_at(index, at, Local::Packed { fence, packed: Box::new(packed) });
    }

    pub(super) fn hear_packed(
        &mut self,
        index: usize,
        fence: Fence,
        packed: Result<Packed, String>,
    ) {
        let Some(at) = self.hosts[index].place_of(fence) else { return };
        let guest = self.hosts[index].places[at].guest.as_mut().expect("it is held");
        let done = packed.map(|packed| guest.packed = Some(packed));
        self.tell_guest(index, fence, guest::Event::Packed(done));
    }

    fn unpack(&mut self, index: usize, start: &Start, payload: Payload) -> Result<(), String> {
        let fails = self.obstacle(0.05);
        let rank = start.rank.as_ref().ok_or("it is no rank")?;
        let Packed { mut script, image } = payload.packed.ok_or("nothing is known of it")?;
        if fails || self.hosts[index].router.is_over(start.subprogram.job, rank.life) {
            return Err("its program has begun again".to_owned());
        }
        assert_eq!((script.job, script.rank), (start.subprogram.job, start.subprogram.index));
        script.life = rank.life;
        let mut endpoint = Endpoint::new(script);
        (endpoint.image, endpoint.arriving) = (image, Some(payload.keep));
        self.hosts[index].router.endpoints.insert(start.at.fence, endpoint);
        Ok(())
    }

    fn set_going(&mut self, index: usize, fence: Fence) {
        let router = &mut self.hosts[index].router;
        let Some(endpoint) = router.endpoints.get_mut(&fence) else { return };
        let Some(keep) = endpoint.arriving.take() else { return };
        if keep == Keep::Nothing {
            endpoint.script.begin_anew();
        }
        self.rank_goes_on(index, fence);
    }

    /// The rank asks what it has to ask, and is written down now and then if it
    /// goes back to images.
    fn rank_goes_on(&mut self, index: usize, fence: Fence) {
        let images = self.hosts[index].router.endpoints[&fence].script.images;
        if images {
            let after = self.up_to(Duration::from_secs(1));
            self.plan_here(index, after, Local::WantsImage(fence));
        }
        if self.fails(0.1) {
            let after = self.up_to(self.setting.work_max);
            self.plan_here(index, after, Local::Faults(fence));
        }
        self.kick(index, fence);
    }

    /// A program of a job that saves nothing is at a boundary.
    pub(super) fn wants_image(&mut self, index: usize, fence: Fence) {
        if self.want_image(index, fence) {
            let after = Duration::from_millis(500) + self.up_to(Duration::from_secs(4));
            self.plan_here(index, after, Local::WantsImage(fence));
        }
    }

    /// Is it there, to want one?
    pub(super) fn want_image(&mut self, index: usize, fence: Fence) -> bool {
        let now = self.now;
        let host = &mut self.hosts[index];
        let Some(at) = host.place_of(fence) else { return false };
        let endpoint = host.router.endpoints.get_mut(&fence);
        let Some(endpoint) = endpoint.filter(|it| it.is_set_going()) else { return false };
        if host.places[at].running(now).is_some() && endpoint.imaging == Imaging::Nothing {
            endpoint.imaging = Imaging::Wanted;
            self.router_says(index, fence, guest::Event::ImageWanted);
        }
        true
    }

    pub(super) fn faults(&mut self, index: usize, fence: Fence) {
        let Some(endpoint) = self.hosts[index].router.endpoints.get_mut(&fence) else { return };
        if endpoint.is_set_going() {
            endpoint.fault = true;
            self.router_says(index, fence, guest::Event::Faulted("it floods".to_owned()));
        }
    }

    /// The rank returns its work, and ends by itself.
    pub(super) fn returns(&mut self, index: usize, fence: Fence) {
        let now = self.now;
        let Some(at) = self.hosts[index].place_of(fence) else { return };
        let host = &mut self.hosts[index];
        let Some(endpoint) = host.router.endpoints.get_mut(&fence) else { return };
        let place = &mut host.places[at];
        if !endpoint.retreating || !endpoint.is_set_going() || place.running(now).is_none() {
            return;
        }
        endpoint.retreated = true;
        place.account(now);
        if let Some(process) = &mut place.process {
            process.left = Duration::from_millis(1);
            process.outcome = gleaner_common::job::Outcome::Succeeded;
        }
        self.router_says(index, fence, guest::Event::Returned);
    }

    /// A rank that runs asks what it has to ask.
    pub(super) fn kick(&mut self, index: usize, fence: Fence) {
        let now = self.now;
        let host = &mut self.hosts[index];
        let Some(at) = host.place_of(fence) else { return };
        let runs = host.places[at].running(now).is_some_and(|process| process.fence == fence);
        let Some(endpoint) = host.router.endpoints.get_mut(&fence) else { return };
        if runs && endpoint.is_set_going() && !endpoint.packed && !endpoint.retreated {
            let asked = endpoint.script.ask(fence);
            if let Some(frame) = asked {
                self.send_up(index, frame);
            }
        }
    }

    /// What the ranks here say again on a new connection.
    pub(super) fn say_again(&mut self, index: usize) {
        let endpoints = &self.hosts[index].router.endpoints;
        let fences: Vec<Fence> = endpoints.keys().copied().collect();
        for fence in fences {
            let Some(endpoint) = self.hosts[index].router.endpoints.get(&fence) else { continue };
            let mut said = endpoint.say(fence);
            let Script { life, cut, .. } = &endpoint.script;
            said.extend(cut.map(|cut| cut_frame(fence, *life, cut)));
            for frame in said {
                self.send_up(index, frame);
            }
            self.kick(index, fence);
        }
    }
}
