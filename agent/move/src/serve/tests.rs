use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::*;
use crate::wire::{Value, put};

/// CRIU's side of the socket.
struct Engine(UnixStream);

impl Engine {
    fn new(memory: &Memory) -> Self {
        let_read(memory).unwrap();
        Self(UnixStream::connect(format!("{}/{SOCKET}", memory.path())).unwrap())
    }

    fn ask(&mut self, name: &str) {
        let mut message = vec![];
        put(&mut message, 1, Value::Bytes(name.as_bytes()));
        let size = u32::try_from(message.len()).unwrap().to_le_bytes();
        self.0.write_all(&[&size, &message[..]].concat()).unwrap();
    }

    /// `None` if there is no such file.
    fn open(&mut self, name: &str) -> Option<File> {
        self.ask(name);
        let mut size = [0; 4];
        self.0.read_exact(&mut size).unwrap();
        let mut reply = vec![0; u32::from_le_bytes(size) as usize];
        self.0.read_exact(&mut reply).unwrap();
        if reply == [8, 0] {
            return None;
        }
        assert_eq!(reply, [8, 1]);
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let ends = [writes.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&ends)));
        let byte = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&self.0, &byte, &mut control, SendFlags::empty()).unwrap();
        Some(reads.into())
    }
}

/// `None` where memory of our own cannot be had.
fn memory() -> Option<Arc<Memory>> {
    let memory = Memory::new().ok().map(Arc::new);
    if memory.is_none() {
        gleaner_skip::without_lab("needs root");
    }
    memory
}

/// `pages-1.img`, of which nothing has come yet.
fn coming(memory: &Arc<Memory>) -> (IncomingFiles, Arc<IncomingFile>, Serving) {
    let incoming = IncomingFiles::default();
    let coming = incoming.open("pages-1.img", memory.create("pages-1.img").unwrap());
    let serving = Serving::start(memory, &incoming).unwrap();
    (incoming, coming, serving)
}

impl IncomingFile {
    fn wait_for_reader(&self) {
        while !matches!(lock(&self.state).reader, Reader::Here(_)) {
            thread::yield_now();
        }
    }
}

fn read(mut file: &File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

fn rest(mut file: File) -> Vec<u8> {
    let mut bytes = vec![];
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn some(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 241).unwrap() ^ seed).collect()
}

#[test]
fn files_are_given_as_they_are_in_any_order() {
    let Some(memory) = memory() else { return };
    let (small, large) = (some(5_000, 1), some(3 << 20, 2));
    for (name, content) in [("small.img", &small), ("large.img", &large), ("empty.img", &vec![])] {
        memory.create(name).unwrap().write_all(content).unwrap();
    }
    let _serving = Serving::start(&memory, &IncomingFiles::default()).unwrap();
    assert!(is_served(&memory));
    let mut engine = Engine::new(&memory);
    // It does not read one before it asks for the next.
    let large_there = engine.open("large.img").unwrap();
    let small_there = engine.open("small.img").unwrap();
    assert!(engine.open("none.img").is_none());
    assert!(rest(engine.open("empty.img").unwrap()).is_empty());
    assert!(rest(small_there) == small);
    assert!(rest(large_there) == large);
}

#[test]
fn what_comes_after_it_was_asked_for_is_given_too() {
    let Some(memory) = memory() else { return };
    let (incoming, coming, _serving) = coming(&memory);
    let (before, after) = (some(PIECE + 4_321, 3), some(5 * PIECE + 17, 4));
    coming.put(&mut [IoSlice::new(&before[..7]), IoSlice::new(&before[7..])]).unwrap();
    coming.put_zeroes(9_000).unwrap();
    let mut engine = Engine::new(&memory);
    let pages = engine.open("pages-1.img").unwrap();
    assert!(read(&pages, before.len()) == before);
    assert!(read(&pages, 9_000) == vec![0; 9_000]);
    // All that was kept is read: what comes now goes to the pipe.
    coming.wait_for_reader();
    thread::scope(|scope| {
        scope.spawn(|| {
            for piece in after.chunks(6_477) {
                coming.put(&mut [IoSlice::new(piece)]).unwrap();
            }
            coming.put_zeroes(3 * PIECE as u64 + 5).unwrap();
            coming.put(&mut [IoSlice::new(b"end")]).unwrap();
            incoming.close(&coming);
        });
        assert!(read(&pages, after.len()) == after);
        assert!(read(&pages, 3 * PIECE + 5) == vec![0; 3 * PIECE + 5]);
        assert_eq!(rest(pages), b"end");
    });
    assert_eq!(lock(&coming.state).bytes, before.len() as u64 + 9_000, "kept only until asked for");
}

/// More than what is lent at once, many times.
const COUNT: u32 = 2_000_000;

/// What is lent must not change before it is read, however slowly that is.
#[test]
fn a_slow_reader_reads_what_was_sent() {
    let Some(memory) = memory() else { return };
    let (incoming, coming, _serving) = coming(&memory);
    let pages = Engine::new(&memory).open("pages-1.img").unwrap();
    coming.wait_for_reader();
    thread::scope(|scope| {
        scope.spawn(|| {
            let numbers: Vec<u8> = (0..COUNT).flat_map(u32::to_le_bytes).collect();
            for piece in numbers.chunks(70_001) {
                coming.put(&mut [IoSlice::new(piece)]).unwrap();
            }
            incoming.close(&coming);
        });
        for number in 0..COUNT {
            if number % 40_000 == 0 {
                thread::yield_now();
            }
            let mut bytes = [0; 4];
            (&pages).read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), number);
        }
    });
}

#[test]
fn who_goes_before_the_end_is_no_failure_of_ours() {
    let Some(memory) = memory() else { return };
    let (incoming, coming, _serving) = coming(&memory);
    let pages = Engine::new(&memory).open("pages-1.img").unwrap();
    coming.wait_for_reader();
    drop(pages);
    let content = some(3 * PIECE, 5);
    coming.put(&mut [IoSlice::new(&content)]).unwrap();
    coming.put_zeroes(PIECE as u64).unwrap();
    assert!(matches!(lock(&coming.state).reader, Reader::Gone));
    incoming.close(&coming);
}

#[test]
fn nobody_waits_for_an_engine_that_is_not_wanted_any_more() {
    let Some(memory) = memory() else { return };
    let serving = Serving::start(&memory, &IncomingFiles::default()).unwrap();
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(serving);
    while Arc::strong_count(&memory) > 1 {
        thread::yield_now();
    }
}

#[test]
fn what_cannot_be_opened_is_not_said_to_be_missing() {
    let Some(memory) = memory() else { return };
    // Opening it fails, and not for want of it.
    std::os::unix::fs::symlink("nowhere", format!("{}/odd.img", memory.path())).unwrap();
    let serving = Serving::start(&memory, &IncomingFiles::default()).unwrap();
    let mut engine = Engine::new(&memory);
    assert!(engine.open("none.img").is_none());
    assert_eq!(serving.failure(), None);
    engine.ask("odd.img");
    // No answer: CRIU gives up.
    assert_eq!(engine.0.read(&mut [0]).unwrap(), 0);
    while serving.failure().is_none() {
        thread::yield_now();
    }
    assert!(serving.failure().unwrap().contains("its image"));
}

#[test]
fn a_file_that_is_cut_off_is_told_of() {
    let Some(memory) = memory() else { return };
    let (_courses, coming, serving) = coming(&memory);
    let mut engine = Engine::new(&memory);
    let _pages = engine.open("pages-1.img").unwrap();
    coming.wait_for_reader();
    assert_eq!(serving.failure(), None);
    // Twice is once too often: what came was given to the first.
    assert!(rest(engine.open("pages-1.img").unwrap()).is_empty());
    while serving.failure().is_none() {
        thread::yield_now();
    }
    assert!(serving.failure().unwrap().contains("asked for before"));
}
