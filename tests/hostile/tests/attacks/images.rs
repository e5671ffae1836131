//! The source of a guest that moves: its image is data from a stranger. A real guest
//! was carried to a hostile agent; whatever that sends on is to be refused, and the
//! honest image still goes on.

use anyhow::{Context as _, Result, ensure};
use gleaner_common::program::{Handover, HandoverReply, Ticket};
use gleaner_common::wire::Facts;
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::hostage::{Hostage, MEMORY_BYTES_MAX};
use gleaner_hostile::image_stream::{ImageStream, zeroes};
use gleaner_hostile::message::with_number;
use gleaner_hostile::peer::Peer;
use gleaner_hostile::world::World;
use tar::{Builder, EntryType, Header};

pub(crate) const CLAIMS: &[Claim] = claims!(Alone:
    a_guest_is_not_taken_with_a_wrong_ticket,
    a_guest_is_not_taken_from_another_agent_than_was_named,
    an_image_with_credentials_in_a_file_of_an_older_form_is_refused,
    an_image_with_another_path_in_its_table_of_files_opens_nothing,
    an_image_with_a_device_as_a_deleted_file_is_refused,
    an_image_of_another_scheduling_class_is_refused,
    an_image_that_may_gain_rights_is_refused,
    an_image_in_a_namespace_of_its_own_is_refused,
    an_image_of_files_that_no_guest_has_is_refused,
    an_archive_with_a_hard_link_is_refused,
    an_archive_with_a_link_out_is_refused,
    an_archive_with_a_path_out_is_refused,
    an_archive_with_a_device_is_refused,
    an_image_that_never_ends_is_refused_at_its_bound,
    an_image_that_is_cut_or_damaged_is_refused,
    the_honest_image_of_the_same_guest_goes_on,
);

/// The guest that the attacker has; none where no guests move.
fn held(world: &World) -> Result<Option<Hostage>> {
    let held = world.hostage.lock().unwrap().take();
    if held.is_some() { Ok(held) } else { Hostage::take(world) }
}

/// Does something with that guest, which stays where it is.
fn with(world: &mut World, work: impl FnOnce(&World, &mut Hostage) -> Result<()>) -> Result<()> {
    let Some(mut hostage) = held(world)? else { return Ok(()) };
    let done = work(world, &mut hostage);
    *world.hostage.lock().unwrap() = Some(hostage);
    done
}

/// An image that was changed is refused, with these words.
fn refuses(
    world: &mut World,
    told: &str,
    change: impl FnOnce(&mut ImageStream) -> Result<()>,
) -> Result<()> {
    with(world, |_, hostage| {
        let mut image = hostage.image.clone();
        change(&mut image)?;
        let said = hostage.refused(&image.bytes())?;
        ensure!(said.contains(told), "expected `{told}`: {said}");
        Ok(())
    })
}

fn with_field(image: &mut ImageStream, file: &str, path: &[u32], number: u64) -> Result<()> {
    let file = image.file(file)?;
    file.content = with_number(&file.content, path, number)?;
    Ok(())
}

fn a_guest_is_not_taken_with_a_wrong_ticket(world: &mut World) -> Result<()> {
    with(world, |_, hostage| {
        let to = hostage.departs()?;
        let connection = hostage.peer.dial(&to.at.name, &to.at.addresses)?;
        let image = hostage.image.bytes();
        let mut almost = to.ticket.0;
        almost[15] ^= 1;
        for ticket in [[0; 16], almost] {
            let what = Handover { ticket: Ticket(ticket), ..hostage.handover(&to) };
            let said = hostage.peer.hands_over(&connection, (to.at.workstation, what), &image)?;
            ensure!(
                matches!(&said, HandoverReply::No { reason } if reason.contains("not expected")),
                "{said:?}"
            );
        }
        // The right one still may come, and this is not it.
        let what = (to.at.workstation, hostage.handover(&to));
        let said = hostage.peer.hands_over(&connection, what, b"no image")?;
        ensure!(matches!(said, HandoverReply::No { .. }), "{said:?}");
        Ok(())
    })
}

fn a_guest_is_not_taken_from_another_agent_than_was_named(world: &mut World) -> Result<()> {
    with(world, |world, hostage| {
        let to = hostage.departs()?;
        let other = Peer::join(world.enrol("agent", "accomplice")?, Facts::default(), 0)?;
        let connection = other.dial(&to.at.name, &to.at.addresses)?;
        let what = (to.at.workstation, hostage.handover(&to));
        let said = other.hands_over(&connection, what, &hostage.image.bytes())?;
        ensure!(
            matches!(&said, HandoverReply::No { reason } if reason.contains("not expected")),
            "{said:?}"
        );
        let what = (to.at.workstation, hostage.handover(&to));
        let through = other.hands_over(&other.link.connection, what, &hostage.image.bytes())?;
        ensure!(matches!(through, HandoverReply::No { .. }), "through the coordinator");
        let connection = hostage.peer.dial(&to.at.name, &to.at.addresses)?;
        let what = (to.at.workstation, hostage.handover(&to));
        hostage.peer.hands_over(&connection, what, b"no image").map(drop)
    })
}

/// The first process of the guest, by which its files are numbered.
fn first(image: &mut ImageStream, kind: &str) -> Result<String> {
    Ok(image.file(kind)?.name.clone())
}

fn an_image_with_credentials_in_a_file_of_an_older_form_is_refused(
    world: &mut World,
) -> Result<()> {
    refuses(world, "is in no guest's image", |image| {
        let core = first(image, "core-")?;
        let creds = core.replace("core-", "creds-");
        let content =
            [&0x5456_4319_u32.to_le_bytes()[..], &0x5402_3547_u32.to_le_bytes(), &[0; 24]];
        image.add(&creds, &content.concat());
        Ok(())
    })
}

/// The path is within what guests may read: only the kernel says that this guest's
/// user may not.
fn an_image_with_another_path_in_its_table_of_files_opens_nothing(world: &mut World) -> Result<()> {
    refuses(world, "etc/shadow", |image| {
        image.replace("files.img", b"/etc/passwd", b"/etc/shadow")
    })?;
    refuses(world, "files.img: reg.name is /rtc/passwd", |image| {
        image.replace("files.img", b"/etc/passwd", b"/rtc/passwd")
    })
}

fn an_image_with_a_device_as_a_deleted_file_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "expected a regular file", |image| {
        with_field(image, "ghost-file-", &[3], 0o020_666)
    })
}

fn an_image_of_another_scheduling_class_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "sched_policy is 1", |image| with_field(image, "core-", &[5, 4], 1))
}

fn an_image_that_may_gain_rights_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "creds.no_new_privs is 0: expected 1", |image| {
        with_field(image, "core-", &[5, 10, 18], 0)
    })
}

fn an_image_in_a_namespace_of_its_own_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "a namespace of its own", |image| with_field(image, "ids-", &[6], 99))
}

fn an_image_of_files_that_no_guest_has_is_refused(world: &mut World) -> Result<()> {
    for name in ["tty-info.img", "mountpoints-9.img", "netdev-9.img", "cgroup.img", "apparmor.img"]
    {
        refuses(world, "is in no guest's image", |image| {
            image.add(name, b"");
            Ok(())
        })?;
    }
    refuses(world, "", |image| {
        image.add("../../../../etc/cron.d/x", b"* * * * * root id");
        Ok(())
    })
}

/// The archive of the guest's files with one entry more, whose name nobody looked at.
fn with_entry(image: &mut ImageStream, kind: EntryType, name: &str, to: &str) -> Result<()> {
    let archive = image.file("files-place.tar")?;
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..to.len()].copy_from_slice(to.as_bytes());
    header.set_mode(0o4_777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_size(0);
    header.set_cksum();
    let mut builder = Builder::new(vec![]);
    builder.append(&header, std::io::empty())?;
    // Before the others: an archive ends with empty blocks.
    let entry = builder.get_ref()[..512].to_vec();
    archive.content = [entry, std::mem::take(&mut archive.content)].concat();
    Ok(())
}

/// To an input that lies in the cache: its owner would be the guest.
fn an_archive_with_a_hard_link_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "is in no guest's archive", |image| {
        with_entry(image, EntryType::Link, "guest/work/taken", "guest/work/input")
    })
}

fn an_archive_with_a_link_out_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "which a guest does not see", |image| {
        with_entry(image, EntryType::Symlink, "guest/work/out", "/root/.ssh")
    })
}

fn an_archive_with_a_path_out_is_refused(world: &mut World) -> Result<()> {
    for name in ["../../escaped", "/etc/escaped", "guest/../../escaped"] {
        refuses(world, "", |image| with_entry(image, EntryType::Regular, name, ""))?;
    }
    for host in &world.lab.hosts {
        ensure!(!host.dir.join("data/escaped").exists() && !host.dir.join("escaped").exists());
    }
    ensure!(!std::path::Path::new("/etc/escaped").exists());
    Ok(())
}

fn an_archive_with_a_device_is_refused(world: &mut World) -> Result<()> {
    refuses(world, "is in no guest's archive", |image| {
        with_entry(image, EntryType::Char, "guest/work/device", "")
    })
}

/// A few bytes each that mean a mebibyte of zeroes.
fn an_image_that_never_ends_is_refused_at_its_bound(world: &mut World) -> Result<()> {
    with(world, |_, hostage| {
        let mut bytes = hostage.image.header.clone();
        let honest = hostage.image.bytes();
        let open = honest.get(bytes.len()..).context("an image")?;
        // The first file is opened, and then there is no end of it.
        let head = open.get(..16).context("a frame")?;
        let length = u32::from_le_bytes(head[4..8].try_into()?) as usize;
        bytes.extend_from_slice(&open[..16 + length]);
        for _ in 0..8 * (MEMORY_BYTES_MAX >> 20) {
            bytes.extend_from_slice(&zeroes(0, 1 << 20));
        }
        let said = hostage.refused(&bytes)?;
        ensure!(said.contains("bytes agreed upon"), "{said}");
        Ok(())
    })
}

fn an_image_that_is_cut_or_damaged_is_refused(world: &mut World) -> Result<()> {
    with(world, |_, hostage| {
        let whole = hostage.image.bytes();
        let said = hostage.refused(&whole[..whole.len() / 2])?;
        ensure!(said.contains("ended before its end") || said.contains("restore"), "{said}");
        let mut damaged = whole.clone();
        let at = hostage.image.header.len() + 20;
        damaged[at] ^= 1;
        let said = hostage.refused(&damaged)?;
        ensure!(said.contains("a checksum is wrong"), "{said}");
        Ok(())
    })
}

/// Nothing of the above was refused for another reason. It arrives with its input as
/// it was, and as another user.
fn the_honest_image_of_the_same_guest_goes_on(world: &mut World) -> Result<()> {
    let Some(mut hostage) = held(world)? else { return Ok(()) };
    let image = hostage.image.bytes();
    loop {
        let to = hostage.departs()?;
        // It knows that it has moved by its user, who is another at another host than
        // where it began.
        let is_another = to.at.name == "host2";
        let connection = hostage.peer.dial(&to.at.name, &to.at.addresses)?;
        let what = (to.at.workstation, hostage.handover(&to));
        let sent = if is_another { image.as_slice() } else { b"no image" };
        let reply = hostage.peer.hands_over(&connection, what, sent)?;
        if is_another {
            ensure!(reply == HandoverReply::Taken, "{reply:?}");
            break;
        }
    }
    let ended = world.mallory.ended(hostage.job)?;
    let wanted = "begun\narrived: deleted kept true the right input\n";
    ensure!(ended.said() == wanted, "{}: {}", ended.outcome(), ended.said());
    Ok(())
}
