//! How long a guest is away while it moves.
//!
//! The guest is `dd` with a block of random bytes, as big as wanted, which it
//! is busy writing to its pipe: nothing in it can be packed, and the first byte
//! that comes from the new place shows that it is back at work. That nothing
//! was lost is checked by counting them all.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gleaner_shell::clock::Clock;

use crate::dump::{Dump, DumpError, Dumped};
use crate::image::Terms;
use crate::memory::Memory;
use crate::serve::Serving;
use crate::sink::{Arrival, ArrivalError, Image};
use crate::stream::Header;
use crate::trial::{Site, Subject, TrialError};

const MIB: u64 = 1 << 20;

/// One move, and the floor under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub mib: u64,
    pub image_bytes: u64,
    pub sent_bytes: u64,
    /// From the order to freeze to the stand.
    pub freezing: Duration,
    /// From the stand to the last byte sent.
    pub dumping: Duration,
    /// From all but its memory received to the processes standing there.
    pub landing: Duration,
    /// From the order to freeze to the first byte from the new place.
    pub frozen: Duration,
    /// The same with no stream: written to memory, restored from there.
    pub floor: Duration,
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error("the loopback device")]
    Link(#[from] io::Error),
    #[error("of {wanted} bytes that the guest writes, {came} came")]
    Lost { wanted: u64, came: u64 },
    #[error("a thread ended badly")]
    Thread,
}

impl From<ArrivalError> for BenchError {
    fn from(error: ArrivalError) -> Self {
        Self::Trial(error.into())
    }
}

impl From<DumpError> for BenchError {
    fn from(error: DumpError) -> Self {
        Self::Trial(error.into())
    }
}

/// Moves a guest of so many MiB over the loopback device, and another one
/// through memory only. Call it from the main thread, as
/// [`crate::trial::trial`].
///
/// # Errors
/// A step fails, or a byte is lost.
pub fn sample(site: &Site, mib: u64) -> Result<Sample, BenchError> {
    let block = format!("bs={mib}M");
    let guest = ["/bin/dd", "if=/dev/urandom", &block, "count=1", "iflag=fullblock", "status=none"];
    let (image, dumped, landing, frozen) = moved(site, &guest, mib)?;
    let (subject, before) = start(site, &guest)?;
    let (floor, new) = floor_of(site, &subject)?;
    let came = before + drain(&subject)?;
    drop(subject);
    count(&new, mib, came + 1)?;
    Ok(Sample {
        mib,
        image_bytes: image,
        sent_bytes: dumped.sent.bytes,
        freezing: dumped.freezing,
        dumping: dumped.dumping,
        landing,
        frozen,
        floor,
    })
}

/// A guest that is ready, and what it has written so far.
fn start(site: &Site, guest: &[&str]) -> Result<(Subject, u64), BenchError> {
    let subject = site.start(0, guest)?;
    // What holds a block writes once that is full.
    let first = subject.read(&mut [0])?;
    Ok((subject, first as u64))
}

/// What the receiver tells while it receives.
enum Coming {
    Header(Box<Header>, Arc<Memory>),
    Known(Vec<i32>),
}

fn moved(
    site: &Site,
    guest: &[&str],
    mib: u64,
) -> Result<(u64, Dumped, Duration, Duration), BenchError> {
    let (subject, before) = start(site, guest)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let outgoing = TcpStream::connect(listener.local_addr()?)?;
    let (incoming, _) = listener.accept()?;
    let (tell, coming) = mpsc::channel();
    let terms = site.terms(1);
    let receiver = thread::spawn(move || receive(incoming, &terms, &tell));

    let begin = Clock.now();
    let dump = Dump::start(&site.engine, &site.fingerprint, &subject.guest())?;
    let sender = thread::spawn(move || dump.run(&outgoing));
    // The place is made ready while the image is on its way, and the guest
    // lands while its memory is.
    let (mut berth, mut landed) = (None, None);
    for coming in coming {
        match coming {
            Coming::Header(header, memory) => berth = Some(site.berth_for(1, &header, &memory)?),
            Coming::Known(stopped) => {
                let begin = Clock.now();
                let new = berth.take().ok_or(BenchError::Thread)?.land(&stopped)?;
                landed = Some((new, Clock.now().since(begin)));
            }
        }
    }
    let (image, _serving) = receiver.join().map_err(|_| BenchError::Thread)??;
    let dumped = sender.join().map_err(|_| BenchError::Thread)??;
    let came = before + drain(&subject)?;
    let (new, landing) = landed.ok_or(BenchError::Thread)?;
    subject.ward.kill();
    new.ward.resume().map_err(TrialError::from)?;
    let first = new.read(&mut [0])? as u64;
    let frozen = Clock.now().since(begin);
    drop(subject);
    count(&new, mib, came + first)?;
    Ok((image.bytes(), dumped, landing, frozen))
}

fn receive(
    mut link: TcpStream,
    terms: &Terms,
    tell: &mpsc::Sender<Coming>,
) -> Result<(Image, Option<Serving>), BenchError> {
    let mut arrival = Arrival::new(u64::MAX)?;
    let (mut bytes, mut serving, mut known) = (vec![0; 256 << 10], None, false);
    while !arrival.has_ended() {
        let length = link.read(&mut bytes)?;
        if length == 0 {
            break;
        }
        arrival.write_all(&bytes[..length])?;
        if let Some(header) = arrival.header().filter(|_| serving.is_none()) {
            serving = Some(arrival.serve()?);
            let _ =
                tell.send(Coming::Header(Box::new(header.clone()), Arc::clone(arrival.memory())));
        }
        if arrival.is_known() && !known {
            known = true;
            let stopped = arrival.adapt(terms).map_err(TrialError::from)?;
            let _ = tell.send(Coming::Known(stopped));
        }
    }
    Ok((arrival.finish()?, serving))
}

/// The floor alone: a guest that says something when it is ready, and again when
/// it has moved, is written to memory and restored from there.
///
/// # Errors
/// As [`sample`].
pub fn floor(site: &Site, guest: &[&str]) -> Result<Duration, BenchError> {
    let (subject, _) = start(site, guest)?;
    floor_of(site, &subject).map(|(floor, _)| floor)
}

fn floor_of(site: &Site, subject: &Subject) -> Result<(Duration, Subject), BenchError> {
    let begin = Clock.now();
    let image = Dump::into_memory(&site.engine, &site.fingerprint, &subject.guest())?;
    let dumped = Clock.now().since(begin);
    let berth = site.berth_for(1, &image.header, image.memory())?;
    let begin = Clock.now();
    let new = site.land(&image, berth)?;
    subject.ward.kill();
    new.ward.resume().map_err(TrialError::from)?;
    new.read(&mut [0])?;
    Ok((dumped + Clock.now().since(begin), new))
}

/// What a frozen guest had written and nobody had read.
fn drain(subject: &Subject) -> io::Result<u64> {
    let pipe = &subject.pipes.from_guest;
    rustix::io::ioctl_fionbio(pipe, true)?;
    let mut bytes = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match (&*pipe).read(&mut bytes) {
            Ok(0) => return Ok(total),
            Ok(length) => total += length as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
            Err(error) => return Err(error),
        }
    }
}

/// Everything comes, once.
fn count(new: &Subject, mib: u64, mut came: u64) -> Result<(), BenchError> {
    let wanted = mib * MIB;
    let mut bytes = vec![0; 1 << 20];
    while let Ok(length) = new.read(&mut bytes) {
        came += length as u64;
    }
    if came == wanted { Ok(()) } else { Err(BenchError::Lost { wanted, came }) }
}
