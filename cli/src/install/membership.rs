//! A machine's enrolment: made once, kept while it works.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gleaner_common::wire::Role;
use gleaner_shell::endpoint::{ConnectError, Credentials, connect};
use gleaner_shell::identity::{Home, Identity, IdentityError, set_aside};

use super::MemberArgs;
use super::site::{Owner, Site, say};
use crate::ask::runtime;
use crate::command::{daemon, enrol};
use crate::failure::hinted;

/// On a machine whose image was made from another's, that one's identity is left
/// behind, and with it what lies in these directories. `--moved` makes it this
/// machine's.
///
/// # Errors
/// No token to get another identity with.
pub(super) fn leave_copy(
    site: &Site,
    args: &MemberArgs,
    here: &Home,
    identity: &str,
    with_it: &[&str],
) -> Result<()> {
    let place = site.path(identity);
    if Home::noted(&place).is_none_or(|there| !there.is_another(here)) {
        return Ok(());
    }
    if args.moved {
        here.note(&place)?;
        say(&format!("the identity in {} is this machine's now", place.display()));
        return Ok(());
    }
    if args.coordinator.is_none() || args.token.is_none() {
        let what = "was made on another machine, and this one has a copy of it";
        return Err(hinted(format!("the identity in {} {what}", place.display()), daemon::COPIED));
    }
    for dir in [identity].iter().chain(with_it).map(|dir| site.path(dir)).filter(|it| it.exists()) {
        let failed = || format!("cannot move {} aside", dir.display());
        let aside = set_aside(&dir).with_context(failed)?;
        say(&format!("another machine's: moved {} to {}", dir.display(), aside.display()));
    }
    Ok(())
}

/// Sees to it that the machine is enrolled. Returns whether that changed.
///
/// # Errors
/// No identity that works, and no token to get one with.
pub(super) fn ensure(
    site: &Site,
    args: &MemberArgs,
    role: Role,
    dir: &str,
    owner: Owner,
) -> Result<bool> {
    let place = site.path(dir);
    match Identity::load(&place) {
        Ok(identity) if identity.role == role => {
            if let Some(changed) = keep(&place, identity, args, site)? {
                if site.is_live() && Home::noted(&place).is_none() {
                    Home::here().note(&place)?;
                }
                return Ok(changed);
            }
        }
        Ok(identity) => bail!(
            "{} holds the identity of a {}: expected one of a {}",
            place.display(),
            identity.role.name(),
            role.name()
        ),
        Err(IdentityError::NotEnrolled { .. }) => {}
        Err(error) => say(&format!("{error}: enrolling anew")),
    }
    let (Some(coordinator), Some(token)) = (&args.coordinator, &args.token) else {
        if site.is_live() {
            return Err(hinted(
                format!(
                    "this machine is not enrolled as {}: expected --coordinator and --token",
                    role.name()
                ),
                format!("an admin makes a token with `glean token create --role {}`", role.name()),
            ));
        }
        say("not enrolled: no --coordinator and --token");
        return Ok(false);
    };
    let name = args.name.clone().unwrap_or_else(host_name);
    let identity = enrol::with_token(coordinator, token, &name)?;
    if identity.role != role {
        bail!(
            "the token was for a {}, not a {}: expected one of `glean token create --role {}`",
            identity.role.name(),
            role.name(),
            role.name()
        );
    }
    enrol::keep(&identity, &place)?;
    if site.is_live() {
        Home::here().note(&place)?;
    }
    site.directory(dir, 0o700, owner)?;
    for file in fs::read_dir(&place)?.flatten() {
        say(&format!("wrote {}", file.path().display()));
    }
    say(&format!("enrolled as {} {} at {coordinator}", role.name(), identity.name));
    Ok(true)
}

/// Tries the identity that is here. `None`: it is refused, and there is a
/// token to enrol anew with.
fn keep(
    place: &Path,
    mut identity: Identity,
    args: &MemberArgs,
    site: &Site,
) -> Result<Option<bool>> {
    let moved = args.coordinator.as_ref().filter(|address| **address != identity.coordinator);
    if let Some(address) = moved {
        identity.coordinator.clone_from(address);
    }
    let known = format!("{} {}", identity.role.name(), identity.name);
    match try_it(&identity)? {
        Ok(()) => {
            say(&format!("enrolled already as {known}, and {} knows it", identity.coordinator));
        }
        Err(error) if error.is_final() && args.token.is_some() => {
            say(&format!("the identity that is here does not work ({error}): enrolling anew"));
            return Ok(None);
        }
        Err(error) if error.is_final() && site.is_live() => {
            return Err(hinted(
                format!("the identity in {} does not work: {error}", place.display()),
                "--coordinator HOST:PORT --token T enrols this machine anew",
            ));
        }
        Err(error) => say(&format!("enrolled already as {known}; not tried: {error}")),
    }
    if moved.is_some() {
        identity.store(place)?;
    }
    Ok(Some(moved.is_some()))
}

fn try_it(identity: &Identity) -> Result<Result<(), ConnectError>> {
    let runtime = runtime()?;
    Ok(runtime.block_on(async {
        let link = connect(&identity.coordinator, Credentials::Identity(identity), None).await?;
        link.close().await;
        Ok(())
    }))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
