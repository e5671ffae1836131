//! A moving guest's image as it travels (`agent/move/src/stream.rs`), taken apart and
//! put together by somebody who does not use gleaner's own code for it.

use anyhow::{Context as _, Result, bail, ensure};

const FRAME: usize = 16;
const CHUNK: usize = 1 << 20;

/// One file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    pub name: String,
    pub content: Vec<u8>,
}

/// All of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageStream {
    /// With its magic number and its length.
    pub header: Vec<u8>,
    pub files: Vec<ImageFile>,
}

impl ImageStream {
    /// # Errors
    /// What was sent is no whole image.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let length = bytes.get(8..12).context("no header")?;
        let length = u32::from_le_bytes(length.try_into()?) as usize;
        let (header, mut rest) = bytes.split_at_checked(12 + length).context("a cut header")?;
        let mut files: Vec<ImageFile> = vec![];
        while let Some((head, body)) = rest.split_at_checked(FRAME) {
            let number = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
            };
            let (payload, after) = body.split_at_checked(number(4)).context("a cut frame")?;
            rest = after;
            let file = usize::from(u16::from_le_bytes([head[2], head[3]]));
            match head[0] {
                b'o' => {
                    let name = String::from_utf8(payload.to_vec())?;
                    ensure!(file == files.len(), "file {file} is out of turn");
                    files.push(ImageFile { name, content: vec![] });
                }
                b'd' => {
                    let content = unpacked(head[1], payload, number(8))?;
                    let file = files.get_mut(file).context("bytes of no file")?;
                    file.content.extend(content);
                }
                b'c' | b'k' => {}
                b'e' => return Ok(Self { header: header.to_vec(), files }),
                _ => bail!("given up: {}", String::from_utf8_lossy(payload)),
            }
        }
        bail!("no end")
    }

    /// All of it, as it travels.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header.clone();
        let is_memory = |file: &ImageFile| file.name.starts_with("pages-");
        for (number, file) in self.files.iter().enumerate() {
            put(&mut out, b'o', number, file.name.as_bytes());
            if !is_memory(file) {
                put_content(&mut out, number, file);
            }
        }
        put(&mut out, b'k', 0, &[]);
        for (number, file) in self.files.iter().enumerate().filter(|(_, file)| is_memory(file)) {
            put_content(&mut out, number, file);
        }
        let bytes: u64 = self.files.iter().map(|file| file.content.len() as u64).sum();
        put(&mut out, b'e', 0, &bytes.to_le_bytes());
        out
    }

    /// The file whose name begins so.
    ///
    /// # Errors
    /// There is none.
    pub fn file(&mut self, begins: &str) -> Result<&mut ImageFile> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        let found = self.files.iter_mut().find(|file| file.name.starts_with(begins));
        found.with_context(|| format!("no {begins} in {names:?}"))
    }

    /// One more file, as if CRIU had written it.
    pub fn add(&mut self, name: &str, content: &[u8]) {
        self.files.push(ImageFile { name: name.to_owned(), content: content.to_vec() });
    }

    /// The first occurrence of some bytes becomes as many others.
    ///
    /// # Errors
    /// They are not there.
    pub fn replace(&mut self, file: &str, from: &[u8], to: &[u8]) -> Result<()> {
        ensure!(from.len() == to.len(), "another length");
        let content = &mut self.file(file)?.content;
        let at = content.windows(from.len()).position(|part| part == from);
        let at = at.with_context(|| format!("no {} in {file}", from.escape_ascii()))?;
        content[at..at + to.len()].copy_from_slice(to);
        Ok(())
    }
}

fn unpacked(encoding: u8, payload: &[u8], length: usize) -> Result<Vec<u8>> {
    Ok(match encoding {
        b'r' => payload.to_vec(),
        b'l' => lz4_flex::block::decompress(payload, length)?,
        b'z' => vec![0; length],
        _ => bail!("no encoding"),
    })
}

fn put_content(out: &mut Vec<u8>, number: usize, file: &ImageFile) {
    for chunk in file.content.chunks(CHUNK) {
        put(out, b'd', number, chunk);
    }
    put(out, b'c', number, &[]);
}

fn put(out: &mut Vec<u8>, kind: u8, file: usize, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let file = u16::try_from(file).unwrap_or(u16::MAX);
    out.extend_from_slice(&[kind, b'r']);
    out.extend_from_slice(&file.to_le_bytes());
    for number in [length, length, crc32c::crc32c(payload)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(payload);
}

/// A frame that says so many zeroes of a file, and takes none of the link's time.
pub fn zeroes(file: u16, length: u32) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    (frame[0], frame[1]) = (b'd', b'z');
    frame[2..4].copy_from_slice(&file.to_le_bytes());
    frame[8..12].copy_from_slice(&length.to_le_bytes());
    frame
}
