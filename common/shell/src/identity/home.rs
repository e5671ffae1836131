//! Which machine an identity was made on. An image that is copied to another
//! machine carries the identity along; what is asked for here it leaves behind.
//!
//! ```text
//! product   the firmware's number of this machine, or of this virtual one (DMI)
//! board     a single-board computer's serial number (device tree)
//! address   the lowest permanent address of a built-in network card
//! system    /etc/machine-id: of the installed system, and copied with it
//! ```
//!
//! The first of them that both sides know decides. The others may change while
//! the machine stays: a system is installed anew, a card is exchanged, and a
//! diskless system has another `machine-id` at each boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::id::MachineId;
use serde::{Deserialize, Serialize};

use crate::atomic::{self, PRIVATE, ReplaceError};
use crate::text;

/// Beside the identity's own files.
const HOME_FILE: &str = "machine.toml";

/// A machine that was copied more often has somebody who can clear that up.
const ASIDE_MAX: u32 = 1_000;

/// So that what is said of a machine is of no use to anybody else.
const CONTEXT: &str = "gleaner 2026 what a machine calls itself";

/// What tells a machine from others, each hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Home {
    product: Option<String>,
    board: Option<String>,
    address: Option<String>,
    system: Option<String>,
}

impl Home {
    /// This machine.
    pub fn here() -> Self {
        Self::of(Path::new("/"))
    }

    /// The machine whose files are below this directory.
    pub fn of(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        Self {
            product: text("sys/class/dmi/id/product_uuid").and_then(|it| hashed("product", &it)),
            board: text("proc/device-tree/serial-number").and_then(|it| hashed("board", &it)),
            address: address(&root.join("sys/class/net")).and_then(|it| hashed("address", &it)),
            system: text("etc/machine-id").and_then(|it| hashed("system", &it)),
        }
    }

    /// The machine that an identity in a directory was made on; `None` if that was
    /// not written down.
    pub fn noted(dir: &Path) -> Option<Self> {
        toml::from_str(&text::read_own(&dir.join(HOME_FILE)).ok()?).ok()
    }

    /// Writes down that the identity in a directory is this machine's.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note(&self, dir: &Path) -> Result<(), ReplaceError> {
        let text = toml::to_string(self)
            .unwrap_or_else(|error| unreachable!("four texts are a TOML table: {error}"));
        atomic::replace(&dir.join(HOME_FILE), text.as_bytes(), PRIVATE)
    }

    /// Are these two machines, as far as can be known?
    pub fn is_another(&self, than: &Self) -> bool {
        let both = self.marks().into_iter().zip(than.marks());
        let mut known = both.filter_map(|(here, there)| here.zip(there));
        known.next().is_some_and(|(here, there)| here != there)
    }

    /// What it is called; `None` where nothing tells it from others.
    pub fn name(&self) -> Option<MachineId> {
        self.marks().into_iter().flatten().next()?.parse().ok()
    }

    fn marks(&self) -> [Option<&String>; 4] {
        [&self.product, &self.board, &self.address, &self.system].map(Option::as_ref)
    }
}

/// Moves an identity that is another machine's aside, with its directory, and says
/// where it is now.
///
/// # Errors
/// It cannot be moved.
pub fn set_aside(dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let free = |n: u32| dir.with_file_name(format!("{name}.of-another-machine-{n}"));
    let to = (1..ASIDE_MAX).map(free).find(|path| !path.exists());
    let to = to.ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(dir, &to).map(|()| to)
}

/// `None` for what is left out, or filled in with one digit: it is many machines'.
fn hashed(kind: &str, text: &str) -> Option<String> {
    let digits: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let first = digits.chars().next()?;
    if digits.len() < 8 || digits.chars().all(|digit| digit == first) {
        return None;
    }
    let hash = blake3::derive_key(CONTEXT, format!("{kind} {digits}").as_bytes());
    let short: [u8; 16] = std::array::from_fn(|at| hash[at]);
    Some(MachineId(short).to_string())
}

/// Of the cards that are built in: what is plugged in moves between machines.
fn address(net: &Path) -> Option<String> {
    let cards = fs::read_dir(net).ok()?.flatten().filter(|card| {
        let path = card.path();
        let said = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        let bus = fs::read_link(path.join("device/subsystem")).unwrap_or_default();
        path.join("device").exists()
            && said("addr_assign_type").trim() == "0"
            && !bus.ends_with("usb")
    });
    cards.filter_map(|card| fs::read_to_string(card.path().join("address")).ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine, as its files say.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let home = Home::of(root.path());
        (root, home)
    }

    const SYSTEM: (&str, &str) = ("etc/machine-id", "0f9c1a527b1c4d4e9c3a000102030405\n");
    const PRODUCT: &str = "sys/class/dmi/id/product_uuid";

    #[track_caller]
    fn check(one: &[(&str, &str)], other: &[(&str, &str)], is_another: bool) {
        let ((_one, one), (_other, other)) = (machine(one), machine(other));
        assert_eq!(one.is_another(&other), is_another, "{one:?} {other:?}");
        assert_eq!(other.is_another(&one), is_another, "{one:?} {other:?}");
    }

    #[test]
    fn a_copied_image_is_told_by_its_firmware_and_a_system_installed_anew_is_not_one() {
        let (a, b) = ((PRODUCT, "4C4C4544-0042"), (PRODUCT, "4c4c4544-0043"));
        let other_system = ("etc/machine-id", "1111aaaa7b1c4d4e9c3a000102030405\n");
        check(&[a, SYSTEM], &[b, SYSTEM], true);
        check(&[a, SYSTEM], &[a, other_system], false);
        check(&[SYSTEM], &[SYSTEM], false);
        check(&[SYSTEM], &[other_system], true);
        check(&[a, SYSTEM], &[SYSTEM], false);
    }

    #[test]
    fn a_number_that_was_never_filled_in_says_nothing() {
        for nothing in ["FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "00000000-0000", "", "None"] {
            check(&[(PRODUCT, nothing), SYSTEM], &[(PRODUCT, "4C4C4544-0042"), SYSTEM], false);
        }
    }

    #[test]
    fn without_firmware_a_built_in_card_tells_and_one_that_is_made_up_does_not() {
        let card = |address, assigned| {
            let net = "sys/class/net/eth0";
            let file = |name: &str, text: &'static str| (format!("{net}/{name}"), text);
            let files = [
                file("address", address),
                file("device/vendor", "1"),
                file("addr_assign_type", assigned),
            ];
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            machine(&files).1
        };
        let (one, other) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        assert!(card(one, "0\n").is_another(&card(other, "0\n")));
        assert!(!card(one, "3\n").is_another(&card(other, "3\n")));
    }

    #[test]
    fn what_was_noted_reads_back_and_a_copy_is_set_aside_with_all_its_files() {
        let (_root, home) = machine(&[(PRODUCT, "4C4C4544-0042"), SYSTEM]);
        assert!(home.name().is_some());
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("agent");
        for _ in 0..2 {
            fs::create_dir(&identity).unwrap();
            home.note(&identity).unwrap();
            assert_eq!(Home::noted(&identity), Some(home.clone()));
            let aside = set_aside(&identity).unwrap();
            assert_eq!(Home::noted(&aside), Some(home.clone()));
            assert_eq!(Home::noted(&identity), None);
        }
    }
}
