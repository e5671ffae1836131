//! What a program must not do, one thing at a time: `naughty MODE`. For tests
//! of what gleaner says then, and of what it leaves behind. Two ranks or more;
//! only rank 1 is naughty, unless it takes all of them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]
#![expect(clippy::wildcard_enum_match_arm, reason = "most modes are no case of their own")]

#[path = "support/tell.rs"]
mod tell;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd, RawFd};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use gleaner_program::{Change, Communicator, Failure, Obligation, Response, Run, live};
use gleaner_program_core::address::{
    Communicator as Space, Envelope, Negotiation, Rank, Tag, cost,
};
use gleaner_program_core::framing::{FrameReader, encode_whole};
use gleaner_program_core::negotiation::{Party, Said, Statement, Template};
use gleaner_program_core::wire::{AgentFrame, PIPES_VARIABLE, ProgramFrame, VERSION};

/// What is saved: this, and the round that is next. Tests look for it.
const SAVED: &str = "naughty saved round ";

#[derive(Clone, Debug, Parser)]
struct Options {
    mode: Mode,
    /// How many messages go round before the end; 20 a second.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// Saves after each round, and goes on there.
    #[arg(long)]
    save: bool,
    /// Saves nothing, and marks a boundary after each round.
    #[arg(long)]
    mark: bool,
    /// What `device` opens.
    #[arg(long, value_name = "PATH", default_value = "/dev/net/tun")]
    device: PathBuf,
    /// Ranks of a run in one process.
    #[arg(long, value_name = "N", default_value_t = 2)]
    ranks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Nothing: messages go round, and each rank ends well.
    Good,
    /// Sends to a rank that does not exist; the library says so.
    Stranger,
    /// The same, past the library.
    StrangerRaw,
    /// Ends without receiving what it was sent.
    Deaf,
    /// Ends with exit code 0 while rank 0 waits for it.
    Quitter,
    /// Ends with exit code 3 while rank 0 waits for it.
    Failing,
    /// Is ended by a signal of its own.
    Crashing,
    /// Sends more than there is room for.
    Flood,
    /// Writes what is no frame.
    Corrupt,
    /// Says that it speaks another version.
    Version,
    /// Answers an offer that nobody made by one that makes no sense.
    Haggler,
    /// Says yes without end to what nobody has offered.
    Nagger,
    /// Promises all the processors that it is asked for, and keeps them.
    Promiser,
    /// Never says anything, and ends.
    Mute,
    /// Leaves a process behind, in a session of its own, that holds the pipes.
    Forker,
    /// Computes for ever, hears nothing, and ignores SIGTERM.
    Stubborn,
    /// Rank 0 sends without end to rank 1, which computes for ever and receives
    /// nothing.
    Unheard,
    /// Has an open connection, so that no image can be taken of it.
    Socket,
    /// Has a device open.
    Device,
    /// All ranks wait for each other.
    Deadlock,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.mode {
        Mode::Mute => Ok(()),
        Mode::StrangerRaw | Mode::Flood | Mode::Corrupt | Mode::Haggler | Mode::Nagger => {
            go_past_the_library(options.mode)
        }
        Mode::Version => Raw::take(VERSION + 1).map(|_| ()),
        Mode::Forker => leave_behind().and_then(|()| play(&options)),
        _ => play(&options),
    };
    tell::tell("naughty", done.map(|()| Ok(None)))
}

fn go_past_the_library(mode: Mode) -> Result<(), Failure> {
    let (raw, rank) = Raw::take(VERSION)?;
    match (mode, rank) {
        (Mode::StrangerRaw, 1) => raw.send(9_999, 1),
        (Mode::Flood, 1) => raw.send(0, u32::MAX),
        (Mode::Corrupt, 1) => raw.corrupt(),
        (Mode::Haggler, 1) => raw.haggle(),
        (Mode::Nagger, 1) => raw.nag(),
        _ => raw.hear_all(),
    }
}

fn play(options: &Options) -> Result<(), Failure> {
    let run = Run { ranks: options.ranks, ..Run::default() };
    live::run(run, |comm| {
        match (options.mode, comm.rank()) {
            (Mode::Deadlock, _) => {
                let left = (comm.rank() + comm.size() - 1) % comm.size();
                comm.recv(left, 7)?;
            }
            (Mode::Deaf, 0) => {
                comm.send(1, 7, b"do you hear me?")?;
                comm.send(1, 8, b"the end")?;
            }
            (Mode::Deaf, 1) => {
                comm.recv(0, 8)?;
            }
            (Mode::Unheard, 0) => loop {
                comm.send(1, 7, b"do you hear me?".repeat(4_000).as_slice())?;
            },
            (Mode::Unheard, 1) => compute_for_ever(),
            (Mode::Quitter | Mode::Failing | Mode::Crashing, 0) => {
                comm.recv(1, 7)?;
            }
            (Mode::Promiser, 0) => comm.on_offer(|offer| match offer.change {
                Change::Grow { .. } => Response::Decline,
                Change::Shrink { .. } => Response::Accept,
            })?,
            (mode, 1) => return misbehave(mode, comm, options),
            _ => {}
        }
        match options.mode {
            Mode::Deaf | Mode::Unheard | Mode::Quitter | Mode::Failing | Mode::Crashing => Ok(()),
            _ => go_round(comm, options),
        }
    })?;
    Ok(())
}

fn misbehave(mode: Mode, comm: &mut Communicator, options: &Options) -> Result<(), Failure> {
    match mode {
        Mode::Stranger => comm.send(9_999, 7, b"who is there?")?,
        Mode::Quitter => return Ok(()),
        Mode::Failing => std::process::exit(3),
        Mode::Crashing => std::process::abort(),
        Mode::Stubborn => compute_for_ever(),
        Mode::Socket => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let _talks = TcpStream::connect(listener.local_addr()?)?;
            let _listens = listener.accept()?;
            return go_round(comm, options);
        }
        Mode::Device => {
            let _open = File::open(&options.device)
                .map_err(|error| format!("{}: {error}", options.device.display()))?;
            return go_round(comm, options);
        }
        _ => {}
    }
    go_round(comm, options)
}

/// A message from each rank to its right, so that all are needed.
fn go_round(comm: &mut Communicator, options: &Options) -> Result<(), Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let first = match comm.restore() {
        Some(state) => saved_round(&state).ok_or("a state that is none")?,
        None => 0,
    };
    if first > 0 {
        println!("naughty: rank {rank} goes on with round {first}");
    }
    if options.mark {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        println!("naughty: rank {rank} began at {}", now.tv_sec);
    }
    for round in first..options.rounds {
        comm.send_values((rank + 1) % size, 1, &[round])?;
        let heard: Vec<u32> = comm.recv_values((rank + size - 1) % size, 1)?;
        if heard != [round] {
            return Err(format!("round {round}: heard {heard:?}").into());
        }
        if options.save {
            comm.save(format!("{SAVED}{}", round + 1).as_bytes())?;
        }
        if options.mark {
            comm.boundary()?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if rank == 0 {
        println!("naughty: {} rounds went round {size} ranks", options.rounds);
    }
    Ok(())
}

fn saved_round(state: &[u8]) -> Option<u32> {
    std::str::from_utf8(state).ok()?.strip_prefix(SAVED)?.parse().ok()
}

fn compute_for_ever() -> ! {
    // Inherited by whatever it may start, as a stubborn shell would have it.
    let mut sum = 0_u64;
    loop {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
}

/// In a session of its own, with this process's pipes.
fn leave_behind() -> Result<(), Failure> {
    let mut command = Command::new("setsid");
    command.args(["sleep", "100000"]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(())
}

/// Opening it by its name in /proc needs rights that a guest has not.
#[expect(unsafe_code, reason = "an inherited descriptor has no owner yet")]
fn inherited(number: RawFd) -> File {
    // SAFETY: the agent's variable says that it is ours, and it is taken once.
    unsafe { File::from_raw_fd(number) }
}

/// The pipes of this rank, without the library.
struct Raw {
    read: File,
    write: File,
    frames: FrameReader,
}

impl Raw {
    /// Greets the agent; gives this rank's number with its pipes.
    fn take(version: u16) -> Result<(Self, u32), Failure> {
        let pipes = std::env::var(PIPES_VARIABLE)?;
        let (read, write) = pipes.split_once(',').ok_or("no pipes")?;
        let mut raw = Self {
            read: inherited(read.parse()?),
            write: inherited(write.parse()?),
            frames: FrameReader::default(),
        };
        raw.say(&ProgramFrame::Hello { version })?;
        match raw.hear()? {
            Some(AgentFrame::Welcome(welcome)) => Ok((raw, welcome.rank.0)),
            other => Err(format!("the agent says {other:?}").into()),
        }
    }

    /// `None`: the agent has closed the pipe.
    fn hear(&mut self) -> Result<Option<AgentFrame>, Failure> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                return Ok(Some(frame));
            }
            let read = self.read.read(&mut buffer)?;
            if read == 0 {
                return Ok(None);
            }
            self.frames.push(&buffer[..read]);
        }
    }

    /// Until another rank has ended, or the agent has had enough of this one.
    fn hear_all(mut self) -> Result<(), Failure> {
        let mut total = 0;
        while let Some(frame) = self.hear()? {
            match frame {
                AgentFrame::Gone { .. } => break,
                AgentFrame::Deliver { from, payload, .. } => {
                    total += cost(payload.len());
                    self.say(&ProgramFrame::Took { from, total })?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn say(&mut self, frame: &ProgramFrame) -> Result<(), Failure> {
        let mut bytes = vec![];
        encode_whole(frame, &mut bytes)?;
        Ok(self.write.write_all(&bytes)?)
    }

    fn send(mut self, to: u32, messages: u32) -> Result<(), Failure> {
        let payload = Bytes::from(vec![7; 60_000]);
        let envelope = Envelope::whole(Space(0), Tag(7));
        for _ in 0..messages {
            let payload = payload.clone();
            self.say(&ProgramFrame::Send { to: Rank(to), envelope, payload })?;
        }
        self.hear_all()
    }

    /// Wants no more processors, and 70,000 of them.
    fn haggle(mut self) -> Result<(), Failure> {
        let (change, within) = (Change::Grow { by: 70_000 }, Duration::from_secs(1));
        let template = Template::processors(within, change, Obligation::Mandatory);
        let (opener, negotiation) = (Party::Coordinator, Negotiation(1));
        let statement = Statement::CounterOffer(template);
        self.say(&ProgramFrame::Negotiate(Said { opener, negotiation, round: 1, statement }))?;
        self.hear_all()
    }

    /// Wants what nobody has offered, again and again.
    fn nag(mut self) -> Result<(), Failure> {
        let (change, within) = (Change::Grow { by: 1 }, Duration::from_secs(1));
        let agreed = Template::processors(within, change, Obligation::Voluntary);
        for number in 0..100_000 {
            let (opener, negotiation) = (Party::Coordinator, Negotiation(number));
            let statement = Statement::Accept { agreed: agreed.clone(), first: None };
            self.say(&ProgramFrame::Negotiate(Said { opener, negotiation, round: 1, statement }))?;
        }
        self.hear_all()
    }

    fn corrupt(mut self) -> Result<(), Failure> {
        self.write.write_all(&[0xff; 64])?;
        self.hear_all()
    }
}
