//! Who gets in by which key and token, and for how long.

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
    assert_eq!(directory.enrol(&key(110), key(2), "ada", NOW).unwrap().replaced, [] as [Key; 0]);
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
fn a_copy_gives_no_number_again_and_lets_nobody_in_by_a_token_that_was_open() {
    let (mut directory, token) = with_token(100, Role::Agent);
    directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
    add_token(&mut directory, 101, Role::Agent);
    let records = directory.become_copy(WorkstationId(1_000));
    // It may have been used since, by a key that is not known here.
    let refused = directory.enrol(&key(101), key(3), "desk-3", NOW);
    assert_eq!(refused, Err(RefusedEnrolment::Revoked));
    assert!(directory.enrol(&token, key(1), "desk-1", NOW).is_ok(), "its reply was lost");
    add_token(&mut directory, 102, Role::Agent);
    let next = directory.enrol(&key(102), key(2), "desk-2", NOW).unwrap().identity;
    assert_eq!(next.workstation, Some(WorkstationId(1_001)));
    let mut again = Directory::restore(records);
    assert_eq!(again.standing(&key(101), NOW), KeyStanding::Revoked);
    add_token(&mut again, 103, Role::Agent);
    let next = again.enrol(&key(103), key(4), "desk-4", NOW).unwrap().identity;
    assert_eq!(next.workstation, Some(WorkstationId(1_001)), "it is kept");
}

#[test]
fn a_rotated_key_takes_the_place_of_the_old_one() {
    let (mut directory, token) = with_token(100, Role::Agent);
    let first = directory.enrol(&token, key(1), "desk-1", NOW).unwrap().identity;
    let (second, records) = directory.rotate(&key(1), key(2), true, NOW).unwrap();
    assert_eq!((second.workstation, records.len()), (first.workstation, 2));
    assert_eq!(directory.standing(&key(1), NOW), KeyStanding::Revoked);
    assert!(matches!(directory.standing(&key(2), NOW), KeyStanding::Enrolled(_)));
    let again = directory.rotate(&key(1), key(3), true, NOW);
    assert_eq!(again, Err(RefusedEnrolment::RevokedKey));
    assert!(directory.revoked_agents(NOW).eq([&key(1)]));
    assert!(taken_from_agents(&records).eq([&key(1)]));
}

fn after(life: Duration) -> WallTime {
    Validity::beginning(NOW, life).until
}

#[test]
fn a_renewed_key_and_the_old_one_are_good_until_their_certificates_run_out() {
    let (mut directory, token) = with_token(100, Role::Agent);
    directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
    let (due, end) = (after(LIFE * 2 / 3), after(LIFE));
    let (second, records) = directory.rotate(&key(1), key(2), false, due).unwrap();
    assert_eq!(second.validity(), Validity::beginning(due, LIFE));
    assert_eq!(taken_from_agents(&records).count(), 0);
    let mut restored = Directory::restore(records.into_iter().chain([DirectoryRecord::Identity {
        key: key(1),
        identity: directory.identities[&key(1)].clone(),
    }]));
    for directory in [&directory, &restored] {
        for number in [1, 2] {
            let standing = directory.standing(&key(number), due);
            assert!(matches!(standing, KeyStanding::Enrolled(_)), "{standing:?}");
        }
        assert_eq!(directory.standing(&key(1), end), KeyStanding::RunOut);
        assert!(matches!(directory.standing(&key(2), end), KeyStanding::Enrolled(_)));
    }
    // The next renewal forgets what nobody gets in by any more.
    let (_, records) = restored.rotate(&key(2), key(3), false, after(LIFE * 4 / 3)).unwrap();
    let forgotten = DirectoryRecord::IdentityForgotten { key: key(1) };
    assert!(records.contains(&forgotten), "{records:?}");
}

#[test]
fn a_machine_that_is_taken_away_loses_the_keys_that_it_renewed_too() {
    let (mut directory, token) = with_token(100, Role::Agent);
    directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
    directory.rotate(&key(1), key(2), false, after(LIFE / 2)).unwrap();
    let (_, records) = directory.remove_workstation("desk-1", after(LIFE / 2)).unwrap();
    assert_eq!(taken_from_agents(&records).count(), 2);
    for number in [1, 2] {
        assert_eq!(directory.standing(&key(number), NOW), KeyStanding::Revoked);
    }
    // Nobody has to be told of a certificate that has run out.
    assert_eq!(directory.revoked_agents(after(LIFE / 2)).count(), 2);
    assert!(directory.revoked_agents(after(LIFE)).eq([&key(2)]));
}

#[test]
fn who_renews_too_early_or_too_often_is_refused() {
    let (mut directory, token) = with_token(100, Role::User);
    directory.enrol(&token, key(1), "ada", NOW).unwrap();
    let early = directory.rotate(&key(1), key(2), false, NOW);
    assert_eq!(early, Err(RefusedEnrolment::TooSoon));
    let due = after(LIFE * 2 / 3);
    for number in 2..=64 {
        directory.rotate(&key(1), key(number), false, due).unwrap();
    }
    // The answer to the same question may have been lost.
    directory.rotate(&key(1), key(64), false, due).unwrap();
    let many = directory.rotate(&key(1), key(65), false, due);
    assert_eq!(many, Err(RefusedEnrolment::TooManyKeys { name: "ada".into() }));
}

/// What was forgotten and not written down came back with a restart, was not among what
/// another key took the place of, and was good when the clock jumped back.
#[test]
fn a_renewal_that_is_refused_forgets_nothing() {
    let (mut directory, token) = with_token(100, Role::Agent);
    directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
    directory.rotate(&key(1), key(2), false, after(LIFE * 2 / 3)).unwrap();
    assert_eq!(directory.standing(&key(1), after(LIFE)), KeyStanding::RunOut);
    let early = directory.rotate(&key(2), key(3), false, after(LIFE));
    assert_eq!(early, Err(RefusedEnrolment::TooSoon));
    add_token_for(&mut directory, 101, Role::Agent, Some("desk-1"));
    let enrolled = directory.enrol(&key(101), key(4), "desk-1", NOW).unwrap();
    assert_eq!(enrolled.replaced, [key(1), key(2)]);
    assert_eq!(directory.standing(&key(1), NOW), KeyStanding::Revoked);
}

#[test]
fn a_certificate_of_before_they_ran_out_is_good_for_one_life_after_its_renewal() {
    let (mut directory, token) = with_token(100, Role::Agent);
    directory.enrol(&token, key(1), "desk-1", NOW).unwrap();
    directory.identities.get_mut(&key(1)).unwrap().expires = None;
    directory.rotate(&key(1), key(2), false, NOW).unwrap();
    assert!(matches!(directory.standing(&key(1), NOW), KeyStanding::Enrolled(_)));
    assert_eq!(directory.standing(&key(1), after(LIFE)), KeyStanding::RunOut);
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
    let endless = TokenRecord { expires: WallTime(i64::MAX), ..directory.tokens[&token].clone() };
    assert!(directory.open_token(key(5), endless, NOW).is_err());
}
