//! CRIU's image files, as far as the target machine must have a say in them.
//!
//! A guest's image says who it was and what it was allowed there. Here it is
//! what *this* place says: its user, no capability, at most its limits. The
//! promise: no restored process has more than a guest that was started here.
//!
//! Source: CRIU 4.1, `images/core.proto`, `creds.proto`, `rlimit.proto`,
//! `ghost-file.proto`, `memfd.proto`; `criu/include/magic.h`.

use std::str::FromStr;

use crate::vetting::Reach;
use crate::wire::{Edit, Malformed, Value, fields, rewrite};

/// Two magic numbers begin an image.
const MAGIC: usize = 8;

/// What its processes have open.
const FILES: &str = "files.img";

/// A resource limit that is none.
const UNLIMITED: u64 = u64::MAX;

/// Whom restored processes become, and what they may use at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub uid: u32,
    pub gid: u32,
    /// Hard limits in the kernel's order (`RLIMIT_CPU` is 0);
    /// `u64::MAX` where there is none.
    pub limits: Vec<u64>,
    /// What they may have open.
    pub reach: Reach,
}

impl Terms {
    /// What this process itself may use.
    pub fn own_limits() -> Vec<u64> {
        (0..16).map(hard_limit).collect()
    }

    /// Does this image file depend on the place?
    pub(crate) fn concern(name: &str) -> bool {
        ["core-", "ghost-file-", "memfd", FILES].iter().any(|kind| name.starts_with(kind))
    }

    /// The image file as it holds here.
    pub(crate) fn apply(&self, name: &str, image: &[u8]) -> Result<Vec<u8>, Malformed> {
        if name.starts_with("core-") {
            each_entry(image, &mut |entry| self.core(entry))
        } else if name.starts_with("ghost-file-") {
            // One entry, then the file's content.
            first_entry(image, &mut |entry| self.owner(entry, 1))
        } else if name == FILES {
            each_entry(image, &mut |entry| self.file(entry))
        } else {
            each_entry(image, &mut |entry| self.owner(entry, 2))
        }
    }

    fn core(&self, entry: &[u8]) -> Result<Vec<u8>, Malformed> {
        rewrite(entry, &mut |number, value| {
            Ok(match (number, value) {
                (3, Value::Bytes(task)) => Edit::Bytes(self.task(task)?),
                (5, Value::Bytes(thread)) => Edit::Bytes(self.thread(thread)?),
                _ => Edit::Keep,
            })
        })
    }

    fn task(&self, task: &[u8]) -> Result<Vec<u8>, Malformed> {
        rewrite(task, &mut |number, value| {
            Ok(match (number, value) {
                (8, Value::Bytes(limits)) => Edit::Bytes(self.clip(limits)?),
                // The audit user and the likeliness to be killed are ours.
                (13 | 14, _) => Edit::Drop,
                _ => Edit::Keep,
            })
        })
    }

    fn clip(&self, limits: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut at_most = self.limits.iter().copied().chain(std::iter::repeat(UNLIMITED));
        rewrite(limits, &mut |_, value| {
            let Value::Bytes(limit) = value else { return Ok(Edit::Keep) };
            let most = at_most.next().unwrap_or(UNLIMITED);
            let clipped = rewrite(limit, &mut |_, value| {
                Ok(match value {
                    Value::Varint(limit) => Edit::Varint(limit.min(most)),
                    Value::Bytes(_) | Value::Fixed(_) => Edit::Keep,
                })
            })?;
            Ok(Edit::Bytes(clipped))
        })
    }

    fn thread(&self, thread: &[u8]) -> Result<Vec<u8>, Malformed> {
        rewrite(thread, &mut |number, value| {
            Ok(match (number, value) {
                (10, Value::Bytes(credentials)) => Edit::Bytes(self.credentials(credentials)?),
                _ => Edit::Keep,
            })
        })
    }

    fn credentials(&self, credentials: &[u8]) -> Result<Vec<u8>, Malformed> {
        rewrite(credentials, &mut |number, value| {
            Ok(match (number, value) {
                (1 | 3 | 5 | 7, _) => Edit::Varint(self.uid.into()),
                (2 | 4 | 6 | 8, _) => Edit::Varint(self.gid.into()),
                // Inheritable, permitted, effective, ambient: none.
                (9..=11 | 19, _) => Edit::Varint(0),
                // Bounding: as of the keeper here, for CRIU can take nothing away.
                (12, _) => Edit::Varint(u32::MAX.into()),
                (14, _) => Edit::Drop,
                _ => Edit::Keep,
            })
        })
    }

    /// A Unix socket that has a path belongs to somebody there.
    fn file(&self, entry: &[u8]) -> Result<Vec<u8>, Malformed> {
        inside(entry, 16, &mut |socket| inside(socket, 13, &mut |path| self.owner(path, 2)))
    }

    /// A file that exists in the image only: its user and group are the fields
    /// `first` and the next.
    fn owner(&self, entry: &[u8], first: u32) -> Result<Vec<u8>, Malformed> {
        rewrite(entry, &mut |number, value| {
            Ok(match value {
                Value::Varint(_) if number == first => Edit::Varint(self.uid.into()),
                Value::Varint(_) if number == first + 1 => Edit::Varint(self.gid.into()),
                Value::Varint(_) | Value::Bytes(_) | Value::Fixed(_) => Edit::Keep,
            })
        })
    }
}

/// Changes a message inside of a message.
fn inside(message: &[u8], wanted: u32, change: Change<'_>) -> Result<Vec<u8>, Malformed> {
    rewrite(message, &mut |number, value| {
        Ok(match value {
            Value::Bytes(inner) if number == wanted => Edit::Bytes(change(inner)?),
            Value::Varint(_) | Value::Bytes(_) | Value::Fixed(_) => Edit::Keep,
        })
    })
}

fn hard_limit(resource: u32) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: UNLIMITED };
    #[expect(unsafe_code, reason = "by number: rustix knows resources by name only")]
    // SAFETY: a plain system call; the out pointer is ours.
    unsafe {
        libc::getrlimit(resource, &raw mut limit);
    }
    limit.rlim_max
}

/// Does this core image's task stand still by its own will (a job control
/// stop)? It must stay so.
///
/// Source: CRIU, `compel/include/uapi/task-state.h`: stopped is 3.
pub(crate) fn is_stopped(core: &[u8]) -> bool {
    let state = || {
        let entry = core.get(MAGIC + 4..)?;
        let task = fields(entry).ok()?.into_iter().find_map(|field| match field {
            (3, Value::Bytes(task)) => Some(task),
            _ => None,
        })?;
        fields(task).ok()?.into_iter().find_map(|field| match field {
            (1, Value::Varint(state)) => Some(state),
            _ => None,
        })
    };
    state() == Some(3)
}

/// The number in an image file's name: 12 of `core-12.img`, whose kind is
/// `core-`.
pub(crate) fn number_in<T: FromStr>(name: &str, kind: &str) -> Option<T> {
    name.strip_prefix(kind)?.strip_suffix(".img")?.parse().ok()
}

/// An image's entries, in order.
pub(crate) fn entries(image: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let (_, mut rest) = image.split_at_checked(MAGIC).ok_or(Malformed)?;
    let mut entries = vec![];
    while !rest.is_empty() {
        let entry;
        (entry, rest) = take_entry(rest)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// The entry that `bytes` begins with, and what comes after it.
pub(crate) fn take_entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
    let size = usize::try_from(u32::from_le_bytes(*size)).map_err(|_| Malformed)?;
    rest.split_at_checked(size).ok_or(Malformed)
}

type Change<'a> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>, Malformed>;

fn each_entry(image: &[u8], change: Change<'_>) -> Result<Vec<u8>, Malformed> {
    let (magic, mut rest) = image.split_at_checked(MAGIC).ok_or(Malformed)?;
    let mut out = magic.to_vec();
    while !rest.is_empty() {
        rest = one_entry(rest, &mut out, change)?;
    }
    Ok(out)
}

fn first_entry(image: &[u8], change: Change<'_>) -> Result<Vec<u8>, Malformed> {
    let (magic, rest) = image.split_at_checked(MAGIC).ok_or(Malformed)?;
    let mut out = magic.to_vec();
    let rest = one_entry(rest, &mut out, change)?;
    out.extend_from_slice(rest);
    Ok(out)
}

/// Changes the entry that `bytes` begins with; what comes after it.
fn one_entry<'a>(
    bytes: &'a [u8],
    out: &mut Vec<u8>,
    change: Change<'_>,
) -> Result<&'a [u8], Malformed> {
    let (entry, rest) = take_entry(bytes)?;
    let changed = change(entry)?;
    let size = u32::try_from(changed.len()).map_err(|_| Malformed)?;
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&changed);
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put;

    fn image_of(entry: &[u8]) -> Vec<u8> {
        let size = u32::try_from(entry.len()).unwrap();
        [&[0x19, 0x43, 0x56, 0x54, 1, 2, 3, 4], &size.to_le_bytes()[..], entry].concat()
    }

    /// A message of one field that is a message.
    fn nested(number: u32, inner: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        put(&mut out, number, Value::Bytes(inner));
        out
    }

    fn terms() -> Terms {
        let reach = Reach::default();
        Terms { uid: 70_001, gid: 70_001, limits: vec![UNLIMITED, 1_000], reach }
    }

    fn varints(pairs: &[(u32, u64)]) -> Vec<u8> {
        let mut out = vec![];
        for (number, value) in pairs {
            put(&mut out, *number, Value::Varint(*value));
        }
        out
    }

    #[test]
    fn whoever_it_was_it_becomes_the_places_user_without_rights() {
        let was = varints(&[
            (1, 0),
            (2, 0),
            (3, 0),
            (7, 0),
            (9, 0xffff),
            (11, 1),
            (12, 0),
            (13, 0),
            (14, 27),
            (19, 1),
        ]);
        let image = image_of(&nested(5, &nested(10, &was)));
        let becomes = varints(&[
            (1, 70_001),
            (2, 70_001),
            (3, 70_001),
            (7, 70_001),
            (9, 0),
            (11, 0),
            (12, 0xffff_ffff),
            (13, 0),
            (19, 0),
        ]);
        let expected = image_of(&nested(5, &nested(10, &becomes)));
        assert_eq!(terms().apply("core-3.img", &image).unwrap(), expected);
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let limit = |soft, hard| nested(1, &varints(&[(1, soft), (2, hard)]));
        let image = |limits: &[Vec<u8>]| image_of(&nested(3, &nested(8, &limits.concat())));
        let was = image(&[limit(5, UNLIMITED), limit(2_000, UNLIMITED), limit(1, 2)]);
        let becomes = image(&[limit(5, UNLIMITED), limit(1_000, 1_000), limit(1, 2)]);
        assert_eq!(terms().apply("core-3.img", &was).unwrap(), becomes);
    }

    #[test]
    fn a_deleted_files_content_is_kept() {
        let entry = varints(&[(1, 5), (2, 5), (3, 0o600)]);
        let image = [image_of(&entry), b"content".to_vec()].concat();
        let changed = terms().apply("ghost-file-1.img", &image).unwrap();
        let entry = varints(&[(1, 70_001), (2, 70_001), (3, 0o600)]);
        assert_eq!(changed, [image_of(&entry), b"content".to_vec()].concat());
    }

    #[test]
    fn a_stopped_task_is_known() {
        let core = |state| image_of(&nested(3, &varints(&[(1, state), (2, 0)])));
        assert!(is_stopped(&core(3)));
        assert!(!is_stopped(&core(1)));
        assert!(!is_stopped(b"short"));
    }

    #[test]
    fn a_cut_off_image_is_refused() {
        let image = image_of(&nested(5, &varints(&[(1, 1)])));
        assert!(terms().apply("core-1.img", &image[..image.len() - 1]).is_err());
        assert!(terms().apply("core-1.img", &image[..6]).is_err());
    }
}
