//! An image is data from a stranger: what no image of a guest of ours has is
//! refused before CRIU sees any of it.
//!
//! ```text
//! name ──► [`format_of`]: one of few files, each with a form
//! file ──► its numbers, its entries ──► [`messages`]: which fields, and what they may say
//! all  ──► [`whole`]: who is there, what is open, and where that lies ([`reach`])
//! ```
//!
//! The promise: every field that CRIU reads was read here before, by the same
//! bytes, and is listed. Knows nothing of whom the guest becomes: that is
//! [`crate::image::Terms`], which is applied to what has passed.

mod messages;
mod reach;
mod rules;
mod whole;

use std::io;

pub use self::reach::Reach;
pub use self::rules::Wrong;
use self::rules::{Fault, Field, check};
use self::whole::Whole;
use crate::image::take_entry;
use crate::stage::TREES;
use crate::wire::{Malformed, Value, fields};

/// The longest file that is read as a whole: a deleted file's content is the most
/// of one. Who reads gives one byte more of what is longer.
pub(crate) const FILE_BYTES_MAX: usize = 128 << 20;

/// Why an image is not shown to CRIU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {wrong}", place(.file, .field))]
pub struct Refusal {
    /// Of the image.
    pub file: String,
    /// The names of a field and of those it is in, by points; of the file if empty.
    pub field: String,
    pub wrong: Wrong,
}

fn place(file: &str, field: &str) -> String {
    if field.is_empty() { file.to_owned() } else { format!("{file}: {field}") }
}

impl Refusal {
    fn of(file: &str, field: impl Into<String>, wrong: Wrong) -> Self {
        Self { file: file.to_owned(), field: field.into(), wrong }
    }

    fn at(file: &str, (path, wrong): Fault) -> Self {
        Self::of(file, path.join("."), wrong)
    }
}

/// Why an image was not looked at to its end, or is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VetError {
    #[error("cannot read {0}")]
    Read(String, #[source] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The form of a file.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Of one entry.
    One(&'static [Field]),
    Many(&'static [Field]),
    /// A head, then entries.
    Headed(&'static [Field], &'static [Field]),
    /// Entries, each with bytes of a length that this field of it says.
    Followed(&'static [Field], u32),
    /// An entry, then what the rest of the file is.
    Content(&'static [Field]),
    /// Not messages: memory, which goes by, and archives, which are looked at
    /// where they are laid.
    Bytes,
}

/// How files are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    None,
    Decimal,
    Hex,
}

/// A kind of file that images have: how its name begins, the number in the head
/// of it, and what it holds.
struct Kind {
    name: &'static str,
    numbers: Numbers,
    magic: u32,
    form: Form,
}

const fn single(name: &'static str, magic: u32, form: Form) -> Kind {
    Kind { name, numbers: Numbers::None, magic, form }
}

const fn numbered(name: &'static str, magic: u32, form: Form) -> Kind {
    Kind { name, numbers: Numbers::Decimal, magic, form }
}

const INVENTORY: u32 = 0x5831_3116;

/// All of them. Source: CRIU, `criu/image-desc.c`, `criu/include/magic.h`.
static KINDS: [Kind; 19] = [
    single("inventory", INVENTORY, Form::One(messages::INVENTORY)),
    single("pstree", 0x5027_3030, Form::Many(messages::PSTREE)),
    numbered("core-", 0x5505_3847, Form::One(messages::CORE)),
    numbered("ids-", 0x5443_2030, Form::One(messages::IDS)),
    numbered("mm-", 0x5749_2820, Form::One(messages::MM)),
    numbered("fdinfo-", 0x5621_3732, Form::Many(messages::FDINFO)),
    numbered("fs-", 0x5140_3912, Form::One(messages::FS)),
    single("files", 0x5630_3138, Form::Many(messages::FILE)),
    single("remap-fpath", 0x5913_3954, Form::Many(messages::REMAP)),
    Kind {
        name: "ghost-file-",
        numbers: Numbers::Hex,
        magic: 0x5258_3605,
        form: Form::Content(messages::GHOST),
    },
    single("memfd", 0x4845_3499, Form::Many(messages::MEMFD_INODE)),
    single("pipes-data", 0x5645_3709, Form::Followed(messages::PIPE_DATA, 2)),
    single("fifo-data", 0x5933_3054, Form::Followed(messages::PIPE_DATA, 2)),
    single("sk-queues", 0x5626_4026, Form::Followed(messages::SOCKET_DATA, 2)),
    single("filelocks", 0x5432_3616, Form::Many(messages::LOCK)),
    numbered("pagemap-", PAGEMAP, Form::Headed(messages::MAP_HEAD, messages::MAP)),
    numbered("pagemap-shmem-", PAGEMAP, Form::Headed(messages::MAP_HEAD, messages::MAP)),
    single("seccomp", 0x6441_3049, Form::One(messages::SECCOMP)),
    numbered("timens-", 0x4311_4433, Form::One(messages::CLOCKS)),
];

const PAGEMAP: u32 = 0x5608_4025;

/// What begins every file but the inventory.
const COMMON: u32 = 0x5456_4319;

impl Kind {
    fn has(&self, name: &str) -> bool {
        let number = name.strip_prefix(self.name).and_then(|rest| rest.strip_suffix(".img"));
        // As CRIU writes them: no number has two names.
        number.is_some_and(|text| match self.numbers {
            Numbers::None => text.is_empty(),
            Numbers::Decimal => text.parse::<u64>().is_ok_and(|number| number.to_string() == text),
            Numbers::Hex => {
                u32::from_str_radix(text, 16).is_ok_and(|number| format!("{number:x}") == text)
            }
        })
    }

    /// The file's entries.
    fn body<'a>(&self, file: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let begins = |bytes: &'a [u8], magic: u32| {
            bytes.strip_prefix(magic.to_le_bytes().as_slice()).ok_or(Malformed)
        };
        let rest = if self.magic == INVENTORY { file } else { begins(file, COMMON)? };
        begins(rest, self.magic)
    }

    /// Hands each entry that follows its rules to `each`.
    fn vet(
        &self,
        file: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let malformed = |_| (vec![], Wrong::Malformed);
        let mut rest = self.body(file).map_err(malformed)?;
        let mut count = 0_usize;
        while !rest.is_empty() {
            let (entry, after) = take_entry(rest).map_err(malformed)?;
            let (rules, skipped) = match self.form {
                Form::One(_) if count > 0 => return Err((vec![], Wrong::TooMany(1))),
                Form::Headed(head, _) if count == 0 => (head, 0),
                Form::One(rules) | Form::Many(rules) | Form::Headed(_, rules) => (rules, 0),
                Form::Followed(rules, length) => {
                    let length = number(entry, length).map_err(malformed)?.unwrap_or(0);
                    (rules, usize::try_from(length).unwrap_or(usize::MAX))
                }
                Form::Content(rules) => (rules, after.len()),
                Form::Bytes => return Ok(()),
            };
            check(entry, rules)?;
            each(entry)?;
            rest = after.get(skipped..).ok_or((vec![], Wrong::Malformed))?;
            count += 1;
        }
        let has_one = matches!(self.form, Form::Many(_) | Form::Followed(..)) || count > 0;
        if has_one { Ok(()) } else { Err((vec![], Wrong::Malformed)) }
    }
}

/// Memory of processes, which comes last, and the archives of a guest's files.
fn is_bytes(name: &str) -> bool {
    let pages = Kind { name: "pages-", numbers: Numbers::Decimal, magic: 0, form: Form::Bytes };
    pages.has(name) || TREES.iter().any(|(tree, _)| *tree == name)
}

/// May an image have such a file?
///
/// # Errors
/// No image of ours has.
pub(crate) fn vet_name(name: &str) -> Result<(), Refusal> {
    if is_bytes(name) || kind_of(name).is_some() {
        return Ok(());
    }
    Err(Refusal::of(&name.escape_default().to_string(), "", Wrong::Foreign))
}

fn kind_of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.has(name))
}

/// The first field of that number, of a message that was or will be checked.
fn number(entry: &[u8], wanted: u32) -> Result<Option<u64>, Malformed> {
    Ok(fields(entry)?.into_iter().find_map(|field| match field {
        (number, Value::Varint(value)) if number == wanted => Some(value),
        _ => None,
    }))
}

/// What an image is checked against beside its own form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims<'a> {
    /// The first process, as the header says.
    pub(crate) root: i32,
    pub(crate) reach: &'a Reach,
}

/// Looks at all files of an image but its processes' memory. What is named
/// otherwise than an image's files are is somebody else's.
///
/// # Errors
/// The first thing in it that no image of a guest has.
pub(crate) fn vet(
    names: &[String],
    read: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    claims: Claims<'_>,
) -> Result<(), VetError> {
    let mut whole = Whole::default();
    for name in names {
        let Some(kind) = kind_of(name) else { continue };
        let file = read(name).map_err(|error| VetError::Read(name.clone(), error))?;
        if file.len() > FILE_BYTES_MAX {
            let wrong = Wrong::TooLong(file.len(), FILE_BYTES_MAX);
            return Err(Refusal::of(name, "", wrong).into());
        }
        let vetted = kind.vet(&file, &mut |entry| whole.take(kind.name, name, entry));
        vetted.map_err(|fault| Refusal::at(name, fault))?;
    }
    Ok(whole.judge(claims)?)
}

#[cfg(test)]
mod tests;
