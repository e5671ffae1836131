use super::*;
use crate::fingerprint::{Fingerprint, Version};
use crate::pack::Packer;

fn header() -> Header {
    let fingerprint = Fingerprint {
        architecture: "x86_64".into(),
        kernel: "6.12".into(),
        criu: Version { major: 4, minor: 1, patch: 0 },
        processor: String::new(),
        features: std::collections::BTreeSet::new(),
        system: String::new(),
        root: [0; 16],
    };
    Header {
        fingerprint,
        root: 2,
        last_pid: 3,
        joins_session: false,
        memory_bytes: 0,
        clocks: (std::time::Duration::ZERO, std::time::Duration::ZERO),
        plugs: vec![],
        left_out: vec![],
    }
}

/// Two files: one with zeroes in the middle and at its end, one empty.
fn stream() -> (Vec<u8>, Vec<u8>) {
    let mut content = vec![0; 3 * CHUNK + 100];
    for (at, byte) in content.iter_mut().take(2 * CHUNK).enumerate() {
        if !(40_000..200_000).contains(&at) {
            *byte = u8::try_from(at % 251).unwrap();
        }
    }
    let mut out = vec![];
    let mut packer = Packer::new(&mut out, &header()).unwrap();
    let pages = packer.open("pages-1.img").unwrap();
    let empty = packer.open("memfd.img").unwrap();
    packer.data(pages, &content).unwrap();
    packer.close(empty).unwrap();
    packer.known().unwrap();
    packer.close(pages).unwrap();
    packer.end().unwrap();
    (out, content)
}

/// `None` where memory of our own cannot be had.
fn arrival(bytes_max: u64) -> Option<Arrival> {
    let arrival = Arrival::new(bytes_max).ok();
    if arrival.is_none() {
        gleaner_skip::without_lab("needs root");
    }
    arrival
}

#[test]
fn what_is_sent_arrives_in_pieces_of_any_size() {
    let (sent, content) = stream();
    assert!(sent.len() < content.len(), "zeroes are not sent");
    for piece in [7, 4_096, 1 << 20, usize::MAX] {
        let Some(mut arrival) = arrival(u64::MAX) else { return };
        for bytes in sent.chunks(piece.min(sent.len())) {
            arrival.write_all(bytes).unwrap();
        }
        assert_eq!(arrival.header(), Some(&header()));
        let Some(mut at_once) = self::arrival(u64::MAX) else { return };
        let chunks: Vec<&[u8]> = sent.chunks(piece.min(sent.len())).collect();
        at_once.take_all(&chunks).unwrap();
        assert!(at_once.finish().unwrap().memory.read("pages-1.img").unwrap() == content);
        let image = arrival.finish().unwrap();
        assert!(image.memory.read("pages-1.img").unwrap() == content, "pieces of {piece}");
        assert_eq!(image.memory.read("memfd.img").unwrap(), b"");
        assert_eq!(image.bytes(), content.len() as u64);
    }
}

#[test]
fn what_is_handed_over_is_what_is_written() {
    /// Takes big pieces without a copy.
    struct Taking(Vec<u8>, usize);
    impl Write for Taking {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Outlet for Taking {
        fn hand(&mut self, bytes: bytes::Bytes) -> io::Result<()> {
            self.1 += bytes.len();
            self.write_all(&bytes)
        }
    }
    let content = bytes::Bytes::from(stream().1);
    let (mut copying, mut taking) = (vec![], Taking(vec![], 0));
    let mut copied = Packer::new(&mut copying, &header()).unwrap();
    let mut handed = Packer::new(&mut taking, &header()).unwrap();
    let (file, same) = (copied.open("a.img").unwrap(), handed.open("a.img").unwrap());
    // What a pipe gives at once.
    for at in (0..content.len()).step_by(CHUNK / 4) {
        let chunk = content.slice(at..content.len().min(at + CHUNK / 4));
        copied.data(file, &chunk).unwrap();
        handed.shared_data(same, &chunk).unwrap();
    }
    copied.end().unwrap();
    handed.end().unwrap();
    assert!(taking.0 == copying && taking.1 > CHUNK, "{} handed over", taking.1);
}

#[test]
fn what_was_packed_for_a_slow_link_arrives() {
    /// 2.5 MB/s: packing pays also where others have most of the machine.
    struct Slow(Vec<u8>);
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(std::time::Duration::from_nanos(400 * bytes.len() as u64));
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Outlet for Slow {}
    let content: Vec<u8> = (0..1_u32 << 19).flat_map(|at| (at / 64).to_le_bytes()).collect();
    let mut slow = Slow(vec![]);
    let mut packer = Packer::new(&mut slow, &header()).unwrap();
    let file = packer.open("pages-1.img").unwrap();
    for chunk in content.chunks(CHUNK / 4) {
        packer.data(file, chunk).unwrap();
    }
    packer.close(file).unwrap();
    packer.known().unwrap();
    let sent = packer.end().unwrap();
    assert!(sent.bytes < sent.raw_bytes * 3 / 4, "{sent:?}");
    let Some(mut arrival) = arrival(u64::MAX) else { return };
    arrival.take(&slow.0).unwrap();
    assert!(arrival.finish().unwrap().memory.read("pages-1.img").unwrap() == content);
}

#[test]
fn no_changed_byte_is_taken_for_the_image() {
    let (sent, _) = stream();
    let Some(_) = arrival(1) else { return };
    for at in (12..sent.len()).step_by(sent.len() / 97) {
        let mut changed = sent.clone();
        changed[at] ^= 0x10;
        let mut arrival = Arrival::new(u64::MAX).unwrap();
        let taken = arrival.take(&changed).is_ok() && arrival.finish().is_ok();
        // The header is checked by its meaning, and by who sends it.
        assert!(!taken || at < 200, "byte {at}");
    }
}

#[test]
fn a_stream_that_ends_early_is_no_image() {
    let (sent, _) = stream();
    for length in [0, 5, 100, sent.len() / 2, sent.len() - 1] {
        let Some(mut arrival) = arrival(u64::MAX) else { return };
        arrival.take(&sent[..length]).unwrap();
        assert!(matches!(arrival.finish(), Err(ArrivalError::Short)), "{length}");
    }
}

#[test]
fn no_more_is_taken_than_was_agreed() {
    let (sent, _) = stream();
    let Some(mut arrival) = arrival(1 << 20) else { return };
    assert!(matches!(arrival.take(&sent), Err(ArrivalError::TooBig(_))));
}

#[test]
fn a_sender_that_gives_up_says_why() {
    let mut out = vec![];
    Packer::new(&mut out, &header()).unwrap().give_up("it holds a TCP socket");
    let Some(mut arrival) = arrival(1) else { return };
    let error = arrival.take(&out).unwrap_err();
    assert_eq!(error.to_string(), "the other side gave up: it holds a TCP socket");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["../x", "/etc/x", "a/b", ""] {
        let mut out = vec![];
        let mut packer = Packer::new(&mut out, &header()).unwrap();
        packer.open(name).unwrap();
        let Some(mut arrival) = arrival(1) else { return };
        assert!(matches!(arrival.take(&out), Err(ArrivalError::Malformed(_))), "{name}");
    }
}

#[test]
fn nothing_but_memory_may_come_after_the_rest() {
    let Some(_) = arrival(1) else { return };
    for (name, taken) in [("pages-1.img", true), ("core-1.img", false), ("pages-x.img", false)] {
        let mut out = vec![];
        let mut packer = Packer::new(&mut out, &header()).unwrap();
        let file = packer.open(name).unwrap();
        packer.data(file, &[0; 8]).unwrap();
        packer.known().unwrap();
        packer.data(file, b"more").unwrap();
        packer.close(file).unwrap();
        packer.end().unwrap();
        let mut arrival = Arrival::new(u64::MAX).unwrap();
        assert_eq!(arrival.take(&out).is_ok(), taken, "{name}");
        assert_eq!(arrival.is_known(), taken, "{name}");
    }
    // Nor a new file.
    let mut out = vec![];
    let mut packer = Packer::new(&mut out, &header()).unwrap();
    packer.known().unwrap();
    packer.open("pages-2.img").unwrap();
    assert!(Arrival::new(u64::MAX).unwrap().take(&out).is_err());
}

#[test]
fn a_breath_changes_nothing() {
    let mut out = vec![];
    let mut packer = Packer::new(&mut out, &header()).unwrap();
    let file = packer.open("pages-1.img").unwrap();
    for part in [b"one", b"two"] {
        packer.data(file, part).unwrap();
        packer.breathe(file).unwrap();
    }
    packer.known().unwrap();
    packer.breathe(file).unwrap();
    packer.close(file).unwrap();
    packer.end().unwrap();
    let Some(mut arrival) = arrival(u64::MAX) else { return };
    out.chunks(3).for_each(|bytes| arrival.take(bytes).unwrap());
    let image = arrival.finish().unwrap();
    assert_eq!(image.memory.read("pages-1.img").unwrap(), b"onetwo");
}
