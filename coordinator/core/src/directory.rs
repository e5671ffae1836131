//! Who may connect: the enrolled keys and the tokens, in memory.
//!
//! The promise: a token enrols one key, once, before it expires; a key that was
//! revoked is never admitted. Decisions are taken here and are durable before
//! anybody hears of them: every change is returned as a [`DirectoryRecord`] for
//! the store. Knows nothing of connections, and reads no clock.
//!
//! ```text
//! token   open ──enrol──► used (the same key may repeat, until it expires)
//!           └──revoke, or a copy of the store──► revoked      └──time──► expired
//! key     enrolled ──a token for its very name, rotation, or an admin──► revoked
//!           └──time──► run out; another was put in its place by renewal before
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::report::{TokenRow, UserRow};
use gleaner_common::time::WallTime;
use gleaner_common::validity::{LIFE, LIFE_MAX, Validity};
use gleaner_common::wire::Role;

/// The longest name of an identity, in bytes: a host name's limit.
pub const IDENTITY_NAME_BYTES_MAX: usize = 253;
/// The longest a token may be open.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Tokens that may be open at a time.
pub const TOKENS_MAX: usize = 100_000;
/// Keys of one name that may be good at a time: a machine has one, and those it
/// had before until their certificates run out; a person has one more for each
/// machine.
pub const KEYS_MAX: usize = 64;

/// A public key as `SubjectPublicKeyInfo` in DER.
pub type Key = Vec<u8>;

/// An enrolled machine or person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    pub role: Role,
    pub name: String,
    /// The workstation, of agents only.
    pub workstation: Option<WorkstationId>,
    pub enrolled: WallTime,
    /// When its certificate runs out; `None` for one of before they did.
    pub expires: Option<WallTime>,
    pub revoked: Option<WallTime>,
}

impl IdentityRecord {
    pub fn has_run_out(&self, wall: WallTime) -> bool {
        self.expires.is_some_and(|expires| expires <= wall)
    }

    /// Of the certificate that is issued for it.
    pub fn validity(&self) -> Validity {
        let endless = Validity::beginning(self.enrolled, LIFE_MAX);
        Validity { until: self.expires.unwrap_or(endless.until), ..endless }
    }
}

/// A one-time permission to enrol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: String,
    pub role: Role,
    /// The only name that it may enrol, if one was given.
    pub name: Option<String>,
    pub expires: WallTime,
    pub used_by: Option<Key>,
    pub revoked: bool,
}

/// What must be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryRecord {
    Identity {
        key: Key,
        identity: IdentityRecord,
    },
    /// Its certificate has run out, and another took its place long ago.
    IdentityForgotten {
        key: Key,
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

impl DirectoryRecord {
    /// The number that this says is given, to whomever.
    pub fn workstation(&self) -> Option<WorkstationId> {
        match self {
            Self::Workstation { workstation, .. } | Self::WorkstationRemoved { workstation } => {
                Some(*workstation)
            }
            Self::Identity { .. } | Self::IdentityForgotten { .. } | Self::Token { .. } => None,
        }
    }
}

/// What the holder of a key may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    Enrolled(IdentityRecord),
    /// The holder has a token that is open, or that it has used itself.
    Newcomer(TokenRecord),
    /// A token's.
    Expired,
    /// An identity's certificate.
    RunOut,
    Revoked,
    Unknown,
}

/// Why nobody was enrolled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedEnrolment {
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
    #[error("{name} has {KEYS_MAX} keys that are good: expected fewer before another is made")]
    TooManyKeys { name: String },
    #[error(
        "less than half of this certificate's time is over: expected to be asked later, is a clock wrong?"
    )]
    TooSoon,
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
pub struct Enrolment {
    pub identity: IdentityRecord,
    pub records: Vec<DirectoryRecord>,
    /// Keys that this enrolment put out of use: close their connections.
    pub replaced: Vec<Key>,
}

/// Why a token was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedToken {
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
#[derive(Debug)]
pub struct Directory {
    /// How long the certificates of machines and people are good.
    certificate_life: Duration,
    identities: BTreeMap<Key, IdentityRecord>,
    tokens: BTreeMap<Key, TokenRecord>,
    /// The keys of a name that are not revoked. A machine's or collector's last
    /// one has taken the place of the others, which may not have run out yet.
    current: BTreeMap<(Role, String), Vec<Key>>,
    workstations: BTreeMap<String, WorkstationId>,
    names: BTreeMap<WorkstationId, String>,
    next_workstation: u32,
}

impl Directory {
    /// Restores the directory from the store's records, in any order.
    pub fn restore(records: impl IntoIterator<Item = DirectoryRecord>) -> Self {
        let mut directory = Self {
            certificate_life: LIFE,
            identities: BTreeMap::new(),
            tokens: BTreeMap::new(),
            current: BTreeMap::new(),
            workstations: BTreeMap::new(),
            names: BTreeMap::new(),
            next_workstation: 1,
        };
        for record in records {
            match record {
                DirectoryRecord::Identity { key, identity } => directory.put(key, identity),
                DirectoryRecord::IdentityForgotten { key } => directory.forget(&key),
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

    /// The same, issuing certificates that are good for so long.
    #[must_use]
    pub fn with_certificate_life(self, certificate_life: Duration) -> Self {
        Self { certificate_life, ..self }
    }

    fn number_is_taken(&mut self, workstation: WorkstationId) {
        self.next_workstation = self.next_workstation.max(workstation.0.saturating_add(1));
    }

    pub fn standing(&self, key: &[u8], wall: WallTime) -> KeyStanding {
        if let Some(identity) = self.identities.get(key) {
            return match identity.revoked {
                Some(_) => KeyStanding::Revoked,
                None if identity.has_run_out(wall) => KeyStanding::RunOut,
                None => KeyStanding::Enrolled(identity.clone()),
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
    pub fn open_token(
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
    pub fn revoke_token(&mut self, id: &str) -> Option<DirectoryRecord> {
        let (key, token) = self
            .tokens
            .iter_mut()
            .find(|(_, token)| token.id == id && !token.revoked && token.used_by.is_none())?;
        token.revoked = true;
        Some(DirectoryRecord::Token { key: key.clone(), token: token.clone() })
    }

    /// What is known is a copy, whose later self may have gone on: tokens that are open
    /// may have been used there, and workstations have been given numbers up to this one.
    pub fn become_copy(&mut self, last: WorkstationId) -> Vec<DirectoryRecord> {
        let mut records = vec![];
        for (key, token) in &mut self.tokens {
            if !token.revoked && token.used_by.is_none() {
                token.revoked = true;
                records.push(DirectoryRecord::Token { key: key.clone(), token: token.clone() });
            }
        }
        let (workstation, name) = (last, "(left out)".to_owned());
        records.push(DirectoryRecord::Workstation { workstation, name });
        records.push(DirectoryRecord::WorkstationRemoved { workstation });
        self.number_is_taken(workstation);
        records
    }

    /// All tokens, the next to expire first.
    pub fn tokens(&self, wall: WallTime) -> Vec<TokenRow> {
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
    pub fn enrol(
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
        let identity = self.identity(token.role, name, workstation, wall);
        self.put(key.clone(), identity.clone());
        records.push(DirectoryRecord::Identity { key: key.clone(), identity: identity.clone() });
        let used = TokenRecord { used_by: Some(key), ..token };
        self.tokens.insert(token_key.to_vec(), used.clone());
        records.push(DirectoryRecord::Token { key: token_key.to_vec(), token: used });
        Ok(Enrolment { identity, records, replaced })
    }

    /// Somebody whose certificate is issued now. A collector speaks with nobody but
    /// the coordinator, which knows who was revoked: it renews nothing.
    fn identity(
        &self,
        role: Role,
        name: &str,
        workstation: Option<WorkstationId>,
        wall: WallTime,
    ) -> IdentityRecord {
        let life = if role == Role::Collector { LIFE_MAX } else { self.certificate_life };
        let expires = Some(Validity::beginning(wall, life).until);
        let name = name.to_owned();
        IdentityRecord { role, name, workstation, enrolled: wall, expires, revoked: None }
    }

    /// Does the name belong to a key that is good? People of all roles have one
    /// set of names: a job belongs to its user by name.
    fn is_taken(&self, role: Role, name: &str) -> bool {
        if has_one_key(role) {
            return self.current.get(&(role, name.to_owned())).is_some_and(|keys| !keys.is_empty());
        }
        self.is_person(name)
    }

    pub fn is_person(&self, name: &str) -> bool {
        self.identities.values().any(|it| it.name == name && is_good_person(it))
    }

    /// Everybody who may submit jobs, by name.
    pub fn users(&self) -> Vec<UserRow> {
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
    pub fn remove_user(&mut self, name: &str, wall: WallTime) -> Vec<DirectoryRecord> {
        let theirs =
            self.identities.iter_mut().filter(|(_, it)| it.name == name && is_good_person(it));
        theirs.map(|(key, identity)| revoked(key, identity, wall)).collect()
    }

    /// Takes a workstation's key away, and its name.
    pub fn remove_workstation(
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

    /// Puts a new key in the place of one that is good, at once, or by and by: the
    /// old one is good until its certificate runs out.
    ///
    /// # Errors
    /// Nothing has changed; see [`RefusedEnrolment`].
    pub fn rotate(
        &mut self,
        old: &[u8],
        new: Key,
        at_once: bool,
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
        let Some(identity) = self.identities.get(old).filter(|it| it.revoked.is_none()).cloned()
        else {
            return Err(RefusedEnrolment::RevokedKey);
        };
        let (run_out, good): (Vec<Key>, Vec<Key>) =
            self.keys_of(&identity).into_iter().partition(|key| self.has_run_out(key, wall));
        if !at_once && identity.expires.is_some() {
            if wall.since(identity.validity().from) < identity.validity().life() / 2 {
                return Err(RefusedEnrolment::TooSoon);
            }
            if good.len() >= KEYS_MAX {
                return Err(RefusedEnrolment::TooManyKeys { name: identity.name });
            }
        }
        // Nobody gets in by keys that have run out, and they are a name's no more.
        for key in &run_out {
            self.forget(key);
        }
        let forgotten = run_out.into_iter().map(|key| DirectoryRecord::IdentityForgotten { key });
        let mut records: Vec<DirectoryRecord> = forgotten.collect();
        if at_once {
            records.extend(self.identities.get_mut(old).map(|it| revoked(old, it, wall)));
        } else if identity.expires.is_none() {
            // It is on somebody's disk for as long as theirs are who renew.
            let ends = Some(Validity::beginning(wall, self.certificate_life).until);
            let older = IdentityRecord { expires: ends, ..identity.clone() };
            self.identities.insert(old.to_vec(), older.clone());
            records.push(DirectoryRecord::Identity { key: old.to_vec(), identity: older });
        }
        let record = self.identity(identity.role, &identity.name, identity.workstation, wall);
        self.put(new.clone(), record.clone());
        records.push(DirectoryRecord::Identity { key: new, identity: record.clone() });
        Ok((record, records))
    }

    /// The keys of a name that are not revoked.
    fn keys_of(&self, identity: &IdentityRecord) -> Vec<Key> {
        let name = (identity.role, identity.name.clone());
        let mut keys = self.current.get(&name).cloned().unwrap_or_default();
        keys.retain(|key| self.identities.get(key).is_some_and(|it| it.revoked.is_none()));
        keys
    }

    fn has_run_out(&self, key: &Key, wall: WallTime) -> bool {
        self.identities.get(key).is_some_and(|it| it.has_run_out(wall))
    }

    fn forget(&mut self, key: &Key) {
        let Some(identity) = self.identities.remove(key) else { return };
        if let Some(keys) = self.current.get_mut(&(identity.role, identity.name)) {
            keys.retain(|other| other != key);
        }
    }

    /// Enrols a key without a token: that of the coordinator's own
    /// administrator, which lies beside the authority's.
    pub fn appoint(
        &mut self,
        key: Key,
        role: Role,
        name: &str,
        validity: Validity,
    ) -> Vec<DirectoryRecord> {
        let mut records = vec![];
        self.revoke_older(role, name, validity.from, &mut records);
        let identity = self.identity(role, name, None, validity.from);
        let identity = IdentityRecord { expires: Some(validity.until), ..identity };
        self.put(key.clone(), identity.clone());
        records.push(DirectoryRecord::Identity { key, identity });
        records
    }

    /// Agents' keys that were revoked and whose certificates have not run out:
    /// what other agents must know. Those of before certificates ran out no
    /// agent takes from another.
    pub fn revoked_agents(&self, wall: WallTime) -> impl Iterator<Item = &[u8]> {
        let of = move |(_, it): &(&Key, &IdentityRecord)| {
            let lasts = it.expires.is_some_and(|expires| expires > wall);
            it.role == Role::Agent && it.revoked.is_some() && lasts
        };
        self.identities.iter().filter(of).map(|(key, _)| key.as_slice())
    }

    pub fn workstation_name(&self, workstation: WorkstationId) -> Option<&str> {
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
        if !has_one_key(role) {
            return vec![];
        }
        let mut keys = self.current.remove(&(role, name.to_owned())).unwrap_or_default();
        keys.retain(|key| self.identities.get(key).is_some_and(|it| it.revoked.is_none()));
        for key in &keys {
            let identity = self.identities.get_mut(key);
            records.extend(identity.map(|identity| revoked(key, identity, wall)));
        }
        keys
    }

    fn put(&mut self, key: Key, identity: IdentityRecord) {
        let keys = self.current.entry((identity.role, identity.name.clone())).or_default();
        keys.retain(|other| *other != key);
        if identity.revoked.is_none() {
            keys.push(key.clone());
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

/// The keys of agents that these records take away.
pub fn taken_from_agents(records: &[DirectoryRecord]) -> impl Iterator<Item = &[u8]> {
    records.iter().filter_map(|record| {
        let DirectoryRecord::Identity { key, identity } = record else { return None };
        let is_taken = identity.role == Role::Agent && identity.revoked.is_some();
        is_taken.then_some(key.as_slice())
    })
}

/// One machine has one key. People may have several: one per machine that they
/// work at.
fn has_one_key(role: Role) -> bool {
    matches!(role, Role::Agent | Role::Collector)
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
mod tests;
