//! Who may connect: the enrolled keys and the tokens, in memory.
//!
//! The promise: a token enrols one key, once, before it expires; a key that was
//! revoked is never admitted. Decisions are taken here and are durable before
//! anybody hears of them: every change is returned as a [`DirectoryRecord`] for
//! the store. Knows nothing of connections, and reads no clock.
//!
//! ```text
//! token   open ──enrol──► used (the same key may repeat, until it expires)
//!           └──revoke──► revoked          └──time──► expired
//! key     enrolled ──a token for its very name, rotation, or an admin──► revoked
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::report::{TokenRow, UserRow};
use gleaner_common::time::WallTime;
use gleaner_common::wire::Role;

/// The longest name of an identity, in bytes: a host name's limit.
pub(crate) const IDENTITY_NAME_BYTES_MAX: usize = 253;
/// The longest a token may be open.
pub(crate) const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Tokens that may be open at a time.
pub(crate) const TOKENS_MAX: usize = 100_000;

/// A public key as `SubjectPublicKeyInfo` in DER.
pub(crate) type Key = Vec<u8>;

/// An enrolled machine or person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdentityRecord {
    pub(crate) role: Role,
    pub(crate) name: String,
    /// The workstation, of agents only.
    pub(crate) workstation: Option<WorkstationId>,
    pub(crate) enrolled: WallTime,
    pub(crate) revoked: Option<WallTime>,
}

/// A one-time permission to enrol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRecord {
    pub(crate) id: String,
    pub(crate) role: Role,
    /// The only name that it may enrol, if one was given.
    pub(crate) name: Option<String>,
    pub(crate) expires: WallTime,
    pub(crate) used_by: Option<Key>,
    pub(crate) revoked: bool,
}

/// What must be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryRecord {
    Identity {
        key: Key,
        identity: IdentityRecord,
    },
    Token {
        key: Key,
        token: TokenRecord,
    },
    Workstation {
        workstation: WorkstationId,
        name: String,
    },
    /// Its name is free again; its number is not.
    WorkstationRemoved {
        workstation: WorkstationId,
    },
}

/// What the holder of a key may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyStanding {
    Enrolled(IdentityRecord),
    /// The holder has a token that is open, or that it has used itself.
    Newcomer(TokenRecord),
    Expired,
    Revoked,
    Unknown,
}

/// Why nobody was enrolled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefusedEnrolment {
    #[error("the token is not known here")]
    UnknownToken,
    #[error("the token has been used: ask for a new one")]
    Used,
    #[error("the token has expired: ask for a new one")]
    Expired,
    #[error("the token has been revoked")]
    Revoked,
    #[error("the token is for `{expected}`, not for `{got}`")]
    OtherName { expected: String, got: String },
    #[error(
        "`{0}` cannot be a name: expected 1 to {IDENTITY_NAME_BYTES_MAX} letters, digits, `.`, `-`, `_` or `@`"
    )]
    BadName(String),
    #[error("the public key is not an Ed25519 key")]
    BadKey,
    #[error("this key was revoked: make a new one")]
    RevokedKey,
    #[error(
        "{} `{name}` is known here with another key: expected a name that is free. An admin gives it away by {}, or lets this key in by a token for it, {}",
        role.name(), give_away(*role, name), token_for(*role, name)
    )]
    Taken { role: Role, name: String },
}

fn give_away(role: Role, name: &str) -> String {
    match role {
        Role::Agent => format!("`glean workstations rm {name}`"),
        Role::User | Role::Admin => format!("`glean users rm {name}`"),
        Role::Collector => "enrolling it under another name".to_owned(),
    }
}

fn token_for(role: Role, name: &str) -> String {
    format!("`glean token create --role {} --name {name}`", role.name())
}

/// An enrolment: to be answered once its records are on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enrolment {
    pub(crate) identity: IdentityRecord,
    pub(crate) records: Vec<DirectoryRecord>,
    /// Keys that this enrolment put out of use: close their connections.
    pub(crate) replaced: Vec<Key>,
}

/// Why a token was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefusedToken {
    #[error("a token cannot be open for {0:?}: expected more than nothing and at most a year")]
    BadLifetime(Duration),
    #[error(
        "`{0}` cannot be a name: expected 1 to {IDENTITY_NAME_BYTES_MAX} letters, digits, `.`, `-`, `_` or `@`"
    )]
    BadName(String),
    #[error("there are {TOKENS_MAX} open tokens already: revoke some first")]
    TooMany,
}

/// All identities and tokens.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    identities: BTreeMap<Key, IdentityRecord>,
    tokens: BTreeMap<Key, TokenRecord>,
    /// The one key of a machine or collector that is not revoked.
    current: BTreeMap<(Role, String), Key>,
    workstations: BTreeMap<String, WorkstationId>,
    names: BTreeMap<WorkstationId, String>,
    next_workstation: u32,
}

impl Directory {
    /// Restores the directory from the store's records, in any order.
    pub(crate) fn restore(records: impl IntoIterator<Item = DirectoryRecord>) -> Self {
        let mut directory = Self { next_workstation: 1, ..Self::default() };
        for record in records {
            match record {
                DirectoryRecord::Identity { key, identity } => directory.put(key, identity),
                DirectoryRecord::Token { key, token } => {
                    directory.tokens.insert(key, token);
                }
                DirectoryRecord::WorkstationRemoved { workstation } => {
                    directory.number_is_taken(workstation);
                }
                DirectoryRecord::Workstation { workstation, name } => {
                    directory.number_is_taken(workstation);
                    directory.names.insert(workstation, name.clone());
                    directory.workstations.insert(name, workstation);
                }
            }
        }
        directory
    }

    fn number_is_taken(&mut self, workstation: WorkstationId) {
        self.next_workstation = self.next_workstation.max(workstation.0.saturating_add(1));
    }

    pub(crate) fn standing(&self, key: &[u8], wall: WallTime) -> KeyStanding {
        if let Some(identity) = self.identities.get(key) {
            return match identity.revoked {
                None => KeyStanding::Enrolled(identity.clone()),
                Some(_) => KeyStanding::Revoked,
            };
        }
        match self.tokens.get(key) {
            None => KeyStanding::Unknown,
            Some(token) if token.revoked => KeyStanding::Revoked,
            Some(token) if token.expires <= wall => KeyStanding::Expired,
            Some(token) => KeyStanding::Newcomer(token.clone()),
        }
    }

    /// Takes up a new token, whose key is derived from its secret.
    ///
    /// # Errors
    /// Nothing has changed; see [`RefusedToken`].
    pub(crate) fn open_token(
        &mut self,
        key: Key,
        token: TokenRecord,
        wall: WallTime,
    ) -> Result<DirectoryRecord, RefusedToken> {
        let lifetime = token.expires.since(wall);
        if lifetime.is_zero() || lifetime > TOKEN_LIFETIME_MAX {
            return Err(RefusedToken::BadLifetime(lifetime));
        }
        if let Some(name) = token.name.as_ref().filter(|name| !is_good_name(name)) {
            return Err(RefusedToken::BadName(name.clone()));
        }
        if self.tokens.len() >= TOKENS_MAX {
            // Tokens that nobody can use any more stay in the store only.
            self.tokens.retain(|_, token| is_open(token, wall));
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(RefusedToken::TooMany);
        }
        self.tokens.insert(key.clone(), token.clone());
        Ok(DirectoryRecord::Token { key, token })
    }

    /// `None` if there is no such token, or it can no longer be revoked.
    pub(crate) fn revoke_token(&mut self, id: &str) -> Option<DirectoryRecord> {
        let (key, token) = self
            .tokens
            .iter_mut()
            .find(|(_, token)| token.id == id && !token.revoked && token.used_by.is_none())?;
        token.revoked = true;
        Some(DirectoryRecord::Token { key: key.clone(), token: token.clone() })
    }

    /// All tokens, the next to expire first.
    pub(crate) fn tokens(&self, wall: WallTime) -> Vec<TokenRow> {
        let mut rows: Vec<_> = self.tokens.values().map(|token| row(token, wall)).collect();
        rows.sort_by(|a, b| (a.expires, &a.id).cmp(&(b.expires, &b.id)));
        rows
    }

    /// Enrols a key with a token. The same key may repeat it with the same
    /// token, as long as that has not expired: a reply that was lost costs
    /// nothing. A name that was enrolled before keeps its workstation's
    /// number, and its old key is revoked.
    ///
    /// # Errors
    /// Nothing has changed; see [`RefusedEnrolment`].
    pub(crate) fn enrol(
        &mut self,
        token_key: &[u8],
        key: Key,
        name: &str,
        wall: WallTime,
    ) -> Result<Enrolment, RefusedEnrolment> {
        let token = self.tokens.get(token_key).ok_or(RefusedEnrolment::UnknownToken)?.clone();
        check_token(&token, &key, name, wall)?;
        if token.used_by.is_some() {
            return self.repeat(&key);
        }
        if self.identities.contains_key(&key) {
            return Err(RefusedEnrolment::RevokedKey);
        }
        // A token that names somebody is an admin's word for this very name.
        if token.name.is_none() && self.is_taken(token.role, name) {
            return Err(RefusedEnrolment::Taken { role: token.role, name: name.to_owned() });
        }
        let mut records = vec![];
        let replaced = self.revoke_older(token.role, name, wall, &mut records);
        let workstation =
            (token.role == Role::Agent).then(|| self.workstation_of(name, &mut records));
        let name = name.to_owned();
        let identity =
            IdentityRecord { role: token.role, name, workstation, enrolled: wall, revoked: None };
        self.put(key.clone(), identity.clone());
        records.push(DirectoryRecord::Identity { key: key.clone(), identity: identity.clone() });
        let used = TokenRecord { used_by: Some(key), ..token };
        self.tokens.insert(token_key.to_vec(), used.clone());
        records.push(DirectoryRecord::Token { key: token_key.to_vec(), token: used });
        Ok(Enrolment { identity, records, replaced })
    }

    /// Does the name belong to a key that is good? People of all roles have one
    /// set of names: a job belongs to its user by name.
    fn is_taken(&self, role: Role, name: &str) -> bool {
        if matches!(role, Role::Agent | Role::Collector) {
            return self.current.contains_key(&(role, name.to_owned()));
        }
        self.is_person(name)
    }

    pub(crate) fn is_person(&self, name: &str) -> bool {
        self.identities.values().any(|it| it.name == name && is_good_person(it))
    }

    /// Everybody who may submit jobs, by name.
    pub(crate) fn users(&self) -> Vec<UserRow> {
        let mut rows: BTreeMap<&str, UserRow> = BTreeMap::new();
        for it in self.identities.values().filter(|it| is_good_person(it)) {
            let row = rows.entry(&it.name).or_insert_with(|| UserRow {
                user: it.name.clone(),
                role: it.role,
                keys: 0,
                enrolled: it.enrolled,
            });
            row.keys += 1;
            row.enrolled = row.enrolled.min(it.enrolled);
            if it.role == Role::Admin {
                row.role = Role::Admin;
            }
        }
        rows.into_values().collect()
    }

    /// Takes a person's keys away. Empty if there is no such person.
    pub(crate) fn remove_user(&mut self, name: &str, wall: WallTime) -> Vec<DirectoryRecord> {
        let theirs =
            self.identities.iter_mut().filter(|(_, it)| it.name == name && is_good_person(it));
        theirs.map(|(key, identity)| revoked(key, identity, wall)).collect()
    }

    /// Takes a workstation's key away, and its name.
    pub(crate) fn remove_workstation(
        &mut self,
        name: &str,
        wall: WallTime,
    ) -> Option<(WorkstationId, Vec<DirectoryRecord>)> {
        let workstation = self.workstations.remove(name)?;
        self.names.remove(&workstation);
        let mut records = vec![DirectoryRecord::WorkstationRemoved { workstation }];
        self.revoke_older(Role::Agent, name, wall, &mut records);
        Some((workstation, records))
    }

    /// Puts a new key in the place of one that is good.
    pub(crate) fn rotate(
        &mut self,
        old: &[u8],
        new: Key,
        wall: WallTime,
    ) -> Result<(IdentityRecord, Vec<DirectoryRecord>), RefusedEnrolment> {
        if !is_ed25519(&new) {
            return Err(RefusedEnrolment::BadKey);
        }
        // The reply to the same question may have been lost.
        if let Some(known) = self.identities.get(&new) {
            let is_theirs = self.identities.get(old).is_some_and(|it| it.name == known.name);
            return if is_theirs && known.revoked.is_none() {
                Ok((known.clone(), vec![]))
            } else {
                Err(RefusedEnrolment::RevokedKey)
            };
        }
        let Some(identity) = self.identities.get_mut(old).filter(|it| it.revoked.is_none()) else {
            return Err(RefusedEnrolment::RevokedKey);
        };
        let record = IdentityRecord { enrolled: wall, ..identity.clone() };
        let mut records = vec![revoked(old, identity, wall)];
        self.put(new.clone(), record.clone());
        records.push(DirectoryRecord::Identity { key: new, identity: record.clone() });
        Ok((record, records))
    }

    /// Enrols a key without a token: that of the coordinator's own
    /// administrator.
    pub(crate) fn appoint(
        &mut self,
        key: Key,
        role: Role,
        name: &str,
        wall: WallTime,
    ) -> Vec<DirectoryRecord> {
        let mut records = vec![];
        self.revoke_older(role, name, wall, &mut records);
        let name = name.to_owned();
        let identity =
            IdentityRecord { role, name, workstation: None, enrolled: wall, revoked: None };
        self.put(key.clone(), identity.clone());
        records.push(DirectoryRecord::Identity { key, identity });
        records
    }

    pub(crate) fn workstation_name(&self, workstation: WorkstationId) -> Option<&str> {
        self.names.get(&workstation).map(String::as_str)
    }

    fn repeat(&self, key: &[u8]) -> Result<Enrolment, RefusedEnrolment> {
        match self.identities.get(key) {
            Some(identity) if identity.revoked.is_none() => {
                Ok(Enrolment { identity: identity.clone(), records: vec![], replaced: vec![] })
            }
            _ => Err(RefusedEnrolment::RevokedKey),
        }
    }

    fn revoke_older(
        &mut self,
        role: Role,
        name: &str,
        wall: WallTime,
        records: &mut Vec<DirectoryRecord>,
    ) -> Vec<Key> {
        let Some(key) = self.current.remove(&(role, name.to_owned())) else { return vec![] };
        let Some(identity) = self.identities.get_mut(&key) else { return vec![] };
        identity.revoked = Some(wall);
        records.push(DirectoryRecord::Identity { key: key.clone(), identity: identity.clone() });
        vec![key]
    }

    /// One machine has one key. People may have several: one per machine that
    /// they work at.
    fn put(&mut self, key: Key, identity: IdentityRecord) {
        let has_one = matches!(identity.role, Role::Agent | Role::Collector);
        if has_one && identity.revoked.is_none() {
            self.current.insert((identity.role, identity.name.clone()), key.clone());
        }
        self.identities.insert(key, identity);
    }

    fn workstation_of(&mut self, name: &str, records: &mut Vec<DirectoryRecord>) -> WorkstationId {
        if let Some(known) = self.workstations.get(name) {
            return *known;
        }
        let workstation = WorkstationId(self.next_workstation.max(1));
        self.next_workstation = workstation.0 + 1;
        self.workstations.insert(name.to_owned(), workstation);
        self.names.insert(workstation, name.to_owned());
        records.push(DirectoryRecord::Workstation { workstation, name: name.to_owned() });
        workstation
    }
}

fn is_good_person(identity: &IdentityRecord) -> bool {
    identity.revoked.is_none() && matches!(identity.role, Role::User | Role::Admin)
}

fn revoked(key: &[u8], identity: &mut IdentityRecord, wall: WallTime) -> DirectoryRecord {
    identity.revoked = Some(wall);
    DirectoryRecord::Identity { key: key.to_vec(), identity: identity.clone() }
}

fn check_token(
    token: &TokenRecord,
    key: &[u8],
    name: &str,
    wall: WallTime,
) -> Result<(), RefusedEnrolment> {
    if token.revoked {
        return Err(RefusedEnrolment::Revoked);
    }
    if token.expires <= wall {
        return Err(RefusedEnrolment::Expired);
    }
    if token.used_by.as_ref().is_some_and(|by| by != key) {
        return Err(RefusedEnrolment::Used);
    }
    if !is_ed25519(key) {
        return Err(RefusedEnrolment::BadKey);
    }
    if !is_good_name(name) {
        return Err(RefusedEnrolment::BadName(name.chars().take(40).collect()));
    }
    match &token.name {
        Some(expected) if expected != name => {
            Err(RefusedEnrolment::OtherName { expected: expected.clone(), got: name.to_owned() })
        }
        _ => Ok(()),
    }
}

fn is_open(token: &TokenRecord, wall: WallTime) -> bool {
    !token.revoked && token.used_by.is_none() && token.expires > wall
}

fn row(token: &TokenRecord, wall: WallTime) -> TokenRow {
    let state = match token {
        TokenRecord { revoked: true, .. } => "revoked",
        TokenRecord { used_by: Some(_), .. } => "used",
        token if is_open(token, wall) => "open",
        _ => "expired",
    };
    TokenRow {
        id: token.id.clone(),
        role: token.role,
        name: token.name.clone(),
        expires: token.expires,
        state: state.to_owned(),
    }
}

/// Names are printed in tables and logs and may become file names.
fn is_good_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    (1..=IDENTITY_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// RFC 8410, §4: an Ed25519 key has exactly this form.
fn is_ed25519(key: &[u8]) -> bool {
    const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];
    key.len() == PREFIX.len() + 32 && key.starts_with(&PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000_000_000);

    fn key(number: u8) -> Key {
        let mut key = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];
        key.extend([number; 32]);
        key
    }

    fn later(seconds: i64) -> WallTime {
        WallTime(NOW.0 + seconds * 1_000_000_000)
    }

    fn with_token(number: u8, role: Role) -> (Directory, Key) {
        let mut directory = Directory::restore([]);
        add_token(&mut directory, number, role);
        (directory, key(number))
    }

    fn add_token(directory: &mut Directory, number: u8, role: Role) {
        add_token_for(directory, number, role, None);
    }

    fn add_token_for(directory: &mut Directory, number: u8, role: Role, name: Option<&str>) {
        let token = TokenRecord {
            id: format!("t{number}"),
            role,
            name: name.map(str::to_owned),
            expires: later(60),
            used_by: None,
            revoked: false,
        };
        directory.open_token(key(number), token, NOW).unwrap();
    }

    #[test]
    fn a_token_enrols_one_key_which_may_repeat_it_until_it_expires() {
        let (mut directory, token) = with_token(100, Role::Agent);
        let first = directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
        assert_eq!(first.identity.workstation, Some(WorkstationId(1)));
        let again = directory.enrol(&token, key(1), "desk-1", later(59)).unwrap();
        assert_eq!((again.identity, again.records.len()), (first.identity, 0));
        let other = directory.enrol(&token, key(2), "desk-2", NOW);
        assert_eq!(other, Err(RefusedEnrolment::Used));
        let late = directory.enrol(&token, key(1), "desk-1", later(60));
        assert_eq!(late, Err(RefusedEnrolment::Expired));
    }

    #[test]
    fn an_expired_or_revoked_token_gets_nobody_in() {
        let (mut directory, token) = with_token(100, Role::Agent);
        assert_eq!(directory.standing(&token, later(60)), KeyStanding::Expired);
        assert!(directory.revoke_token("t100").is_some());
        assert!(directory.revoke_token("t100").is_none());
        assert_eq!(directory.standing(&token, NOW), KeyStanding::Revoked);
        assert_eq!(directory.enrol(&token, key(1), "desk-1", NOW), Err(RefusedEnrolment::Revoked));
        assert_eq!(directory.standing(&key(9), NOW), KeyStanding::Unknown);
    }

    #[test]
    fn a_machine_that_enrols_again_keeps_its_number_and_loses_its_old_key() {
        let (mut directory, token) = with_token(100, Role::Agent);
        let first = directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
        add_token(&mut directory, 101, Role::Agent);
        let refused = directory.enrol(&key(101), key(2), "desk-1", NOW).unwrap_err();
        assert!(refused.to_string().contains("`glean workstations rm desk-1`"), "{refused}");
        assert!(matches!(directory.standing(&key(1), NOW), KeyStanding::Enrolled(_)));
        add_token_for(&mut directory, 103, Role::Agent, Some("desk-1"));
        let second = directory.enrol(&key(103), key(2), "desk-1", NOW).unwrap();
        assert_eq!(second.identity.workstation, first.identity.workstation);
        assert_eq!(second.replaced, [key(1)]);
        assert_eq!(directory.standing(&key(1), NOW), KeyStanding::Revoked);
        add_token(&mut directory, 102, Role::Agent);
        let other = directory.enrol(&key(102), key(3), "desk-2", NOW).unwrap();
        assert_eq!(other.identity.workstation, Some(WorkstationId(2)));
    }

    #[test]
    fn a_person_may_have_several_keys() {
        let (mut directory, token) = with_token(100, Role::User);
        directory.enrol(&token, key(1), "ada", NOW).unwrap();
        for role in [Role::User, Role::Admin] {
            add_token(&mut directory, 101 + role as u8, role);
            let refused = directory.enrol(&key(101 + role as u8), key(2), "ada", NOW).unwrap_err();
            assert!(refused.to_string().contains("`glean users rm ada`"), "{refused}");
        }
        add_token_for(&mut directory, 110, Role::User, Some("ada"));
        assert_eq!(
            directory.enrol(&key(110), key(2), "ada", NOW).unwrap().replaced,
            [] as [Key; 0]
        );
        assert_eq!(directory.users()[0].keys, 2);
        assert!(matches!(directory.standing(&key(1), NOW), KeyStanding::Enrolled(_)));
    }

    #[test]
    fn a_name_that_was_given_away_is_free_and_a_number_is_not() {
        let (mut directory, token) = with_token(100, Role::User);
        directory.enrol(&token, key(1), "ada", NOW).unwrap();
        assert_eq!(directory.remove_user("ada", NOW).len(), 1);
        assert_eq!(directory.remove_user("ada", NOW), []);
        assert_eq!(directory.standing(&key(1), NOW), KeyStanding::Revoked);
        add_token(&mut directory, 101, Role::User);
        directory.enrol(&key(101), key(2), "ada", NOW).unwrap();
        add_token(&mut directory, 102, Role::Agent);
        directory.enrol(&key(102), key(3), "desk-1", NOW).unwrap();
        let (removed, _) = directory.remove_workstation("desk-1", NOW).unwrap();
        assert_eq!(directory.standing(&key(3), NOW), KeyStanding::Revoked);
        add_token(&mut directory, 103, Role::Agent);
        let again = directory.enrol(&key(103), key(4), "desk-1", NOW).unwrap();
        assert_ne!(again.identity.workstation, Some(removed));
    }

    #[test]
    fn a_rotated_key_takes_the_place_of_the_old_one() {
        let (mut directory, token) = with_token(100, Role::Agent);
        let first = directory.enrol(&token, key(1), "desk-1", NOW).unwrap().identity;
        let (second, records) = directory.rotate(&key(1), key(2), NOW).unwrap();
        assert_eq!((second.workstation, records.len()), (first.workstation, 2));
        assert_eq!(directory.standing(&key(1), NOW), KeyStanding::Revoked);
        assert!(matches!(directory.standing(&key(2), NOW), KeyStanding::Enrolled(_)));
        assert_eq!(directory.rotate(&key(1), key(3), NOW), Err(RefusedEnrolment::RevokedKey));
    }

    #[test]
    fn what_the_records_say_is_what_a_restart_finds() {
        let (mut directory, token) = with_token(100, Role::Agent);
        let mut records = vec![DirectoryRecord::Token {
            key: token.clone(),
            token: directory.tokens[&token].clone(),
        }];
        records.extend(directory.enrol(&token, key(1), "desk-1", NOW).unwrap().records);
        let restored = Directory::restore(records);
        assert_eq!(restored.identities, directory.identities);
        assert_eq!(restored.tokens, directory.tokens);
        assert_eq!(restored.next_workstation, directory.next_workstation);
    }

    #[test]
    fn bad_names_keys_and_lifetimes_are_refused() {
        let (mut directory, token) = with_token(100, Role::Agent);
        for name in ["", "a b", "../x", "-x", "a\nb", &"x".repeat(254)] {
            let refused = directory.enrol(&token, key(1), name, NOW);
            assert!(matches!(refused, Err(RefusedEnrolment::BadName(_))), "{name:?}");
        }
        let refused = directory.enrol(&token, vec![1, 2, 3], "desk-1", NOW);
        assert_eq!(refused, Err(RefusedEnrolment::BadKey));
        let endless =
            TokenRecord { expires: WallTime(i64::MAX), ..directory.tokens[&token].clone() };
        assert!(directory.open_token(key(5), endless, NOW).is_err());
    }
}
