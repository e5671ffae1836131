//! What the targets in `tests/fuzz` call: bytes of a stranger, and nothing
//! but an answer may come of them.

use std::io::Write as _;
use std::path::Path;

use crate::archive::unpack;
use crate::sink::Arrival;
use crate::vetting::{Claims, Reach, vet, vet_name};

/// An image's files: for each the length of its name, the name, the length of its
/// content in four bytes, the content.
pub fn image(bytes: &[u8]) {
    let mut files = std::collections::BTreeMap::new();
    let mut rest = bytes;
    while let Some((name, content, after)) = take_file(rest) {
        files.insert(name, content);
        rest = after;
    }
    let names: Vec<String> = files.keys().filter(|name| vet_name(name).is_ok()).cloned().collect();
    let claims = Claims { root: 2, reach: &Reach::default() };
    let _ = vet(&names, &mut |name| Ok(files[name].to_vec()), claims);
}

fn take_file(bytes: &[u8]) -> Option<(String, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (content, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8(name.to_vec()).ok()?, content, rest))
}

/// The archive of a guest's files.
pub fn archive(bytes: &[u8]) {
    let home = std::env::temp_dir().join(format!("gleaner-fuzz-{}", std::process::id()));
    let _ = std::fs::create_dir(&home);
    let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let _ = unpack(bytes, Path::new(&home), own, &Reach::default());
    let _ = std::fs::remove_dir_all(&home);
}

/// A whole image on its way. Needs root, as taking one in does.
pub fn stream(bytes: &[u8]) {
    if let Ok(mut arrival) = Arrival::new(64 << 20) {
        let _ = arrival.write_all(bytes);
    }
}
