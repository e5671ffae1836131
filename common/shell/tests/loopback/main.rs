//! What only real connections can show: who is let in, what a refused peer is
//! told, and what becomes of a stream that breaks.

#![expect(clippy::unwrap_used, reason = "what fails in the test's lab fails the test")]

mod lab;

use gleaner_common::frame;
use gleaner_common::id::JobId;
use gleaner_common::wire::{Purpose, Reply, Request, VERSION};
use gleaner_shell::blob;
use gleaner_shell::client::{Client, ClientError};
use gleaner_shell::endpoint::{self, Admission, Credentials, Ended};
use gleaner_shell::enrol::{EnrolError, enrol};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader, StreamError};

use lab::{Lab, run, trusting};

async fn ask(identity: &Identity, lab: &Lab) -> Result<Reply, ClientError> {
    let client = Client::connect(identity, Some(&lab.address())).await?;
    client.request(&Request::Cancel(JobId(7))).await
}

#[track_caller]
fn check_refusal(result: Result<Reply, ClientError>, lab: &Lab, why: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), format!("the coordinator at {}: {why}", lab.address()));
    assert!(error.hint().is_some());
}

#[test]
fn an_enrolled_identity_is_let_in_and_known_by_its_key() {
    run(async {
        let lab = Lab::start();
        let identity = lab.identity(Admission::Enrolled);
        assert_eq!(ask(&identity, &lab).await.unwrap(), Reply::Cancelled);
    });
}

#[test]
fn a_listing_comes_row_by_row_and_a_cut_one_is_an_error() {
    run(async {
        let lab = Lab::start();
        let client = Client::connect(&lab.identity(Admission::Enrolled), None).await.unwrap();
        let mut rows = client.rows(&Request::Jobs).await.unwrap();
        for n in 0..3 {
            let expected = Reply::Why(vec![format!("row {n}")]);
            assert_eq!(rows.next().await.unwrap(), Some(expected));
        }
        assert_eq!(rows.next().await.unwrap(), None);
        assert_eq!(rows.next().await.unwrap(), None);

        let mut cut = client.rows(&Request::Workstations).await.unwrap();
        cut.next().await.unwrap();
        let error = cut.next().await.unwrap_err().to_string();
        assert!(error.ends_with("the stream ended where Reply was expected"), "{error}");

        let mut no = client.rows(&Request::Tokens).await.unwrap();
        assert!(matches!(no.next().await.unwrap(), Some(Reply::No { .. })));
        assert_eq!(no.next().await.unwrap(), None);
        client.close().await;
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_the_coordinator() {
    run(async {
        let (lab, other) = (Lab::start(), Lab::start());
        let foreign = other.identity(Admission::Enrolled);
        lab.keys.lock().unwrap().insert(foreign.spki(), Admission::Enrolled);
        let foreign = trusting(&foreign, &lab.identity(Admission::Enrolled));
        check_refusal(
            ask(&foreign, &lab).await,
            &lab,
            "unknown certificate: it was signed by another authority than this coordinator's",
        );
    });
}

#[test]
fn a_coordinator_of_another_authority_is_refused_by_the_client() {
    run(async {
        let (lab, other) = (Lab::start(), Lab::start());
        check_refusal(
            ask(&other.identity(Admission::Enrolled), &lab).await,
            &lab,
            "its certificate was not signed by the authority that this side trusts",
        );
        let token = other.token(Admission::Token);
        let error = enrol(&lab.address(), &token, "ws1").await.unwrap_err();
        assert!(error.to_string().ends_with("the authority that this side trusts"), "{error}");
    });
}

#[test]
fn revoked_and_unknown_identities_are_told_apart() {
    run(async {
        let lab = Lab::start();
        check_refusal(
            ask(&lab.identity(Admission::Revoked), &lab).await,
            &lab,
            "this identity has been revoked",
        );
        check_refusal(
            ask(&lab.identity(Admission::Unknown), &lab).await,
            &lab,
            "this identity is not known here, though its certificate is from this authority",
        );
    });
}

#[test]
fn a_certificate_that_has_run_out_is_told_so_with_what_to_do() {
    run(async {
        let lab = Lab::start();
        let error = ask(&lab.identity(Admission::RunOut), &lab).await.unwrap_err().to_string();
        assert!(error.contains("this identity's certificate has run out"), "{error}");
        assert!(error.contains("`glean token create`"), "{error}");
    });
}

#[test]
fn an_expired_or_unknown_token_is_told_so() {
    run(async {
        let lab = Lab::start();
        for (admission, why) in [
            (Admission::Expired, "the token has expired"),
            (Admission::Unknown, "the token is not known here or has been used"),
            (Admission::Revoked, "the token is not known here or has been used"),
        ] {
            let error = enrol(&lab.address(), &lab.token(admission), "ws1").await.unwrap_err();
            assert_eq!(error.to_string(), format!("the coordinator at {}: {why}", lab.address()));
            assert_eq!(error.hint(), Some("ask an admin for a new one: `glean token create`"));
        }
    });
}

#[test]
fn a_token_enrols_once_and_the_identity_survives_on_disk() {
    run(async {
        let lab = Lab::start();
        let token = lab.token(Admission::Token).to_string().parse().unwrap();
        let identity = enrol(&lab.address(), &token, "ws1").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("identity");
        identity.store(&home).unwrap();
        let loaded = Identity::load(&home).unwrap();
        assert_eq!((loaded.name.as_str(), loaded.role.name()), ("ws1", "agent"));
        assert_eq!(loaded.coordinator, lab.address());
        assert_eq!(loaded.authority_fingerprint(), lab.authority.fingerprint());
        assert_eq!(ask(&loaded, &lab).await.unwrap(), Reply::Cancelled);

        let again = enrol(&lab.address(), &token, "ws2").await.unwrap_err();
        assert!(again.to_string().ends_with("is not known here or has been used"), "{again}");
    });
}

#[test]
fn a_refused_enrolment_gives_the_coordinators_reason() {
    run(async {
        let lab = Lab::start();
        let error = enrol(&lab.address(), &lab.token(Admission::Token), "").await.unwrap_err();
        assert!(
            matches!(&error, EnrolError::Refused { reason, .. } if reason == "the name is empty")
        );
    });
}

/// Writes bytes on a fresh stream and returns what the reader is told.
async fn say(lab: &Lab, bytes: &[u8]) -> StreamError {
    let identity = lab.identity(Admission::Enrolled);
    let credentials = Credentials::Identity(&identity);
    let link = endpoint::connect(&lab.address(), credentials, None).await.unwrap();
    let (mut send, recv) = link.connection.open_bi().await.unwrap();
    send.write_all(bytes).await.unwrap();
    send.finish().unwrap();
    FrameReader::new(recv).expect::<Reply>().await.unwrap_err()
}

#[test]
fn another_version_is_explained_with_both_numbers() {
    run(async {
        let lab = Lab::start();
        let mut bytes = vec![];
        // An opening of a later day, which nobody here can read further.
        frame::encode(&(VERSION + 1, 99u8, "more"), &mut bytes).unwrap();
        assert_eq!(
            say(&lab, &bytes).await.to_string(),
            format!(
                "protocol version {VERSION} there and {} here: expected the same release of \
                 glean on both sides",
                VERSION + 1
            )
        );
    });
}

#[test]
fn truncated_oversized_and_malformed_frames_are_named_and_end_only_their_connection() {
    run(async {
        let lab = Lab::start();
        let calm = Client::connect(&lab.identity(Admission::Enrolled), None).await.unwrap();
        let opening = |purpose| {
            let mut bytes = vec![];
            frame::encode(&gleaner_common::wire::Opening::new(purpose), &mut bytes).unwrap();
            bytes
        };
        for (tail, why) in [
            (&[5, 0, 0, 0, 1][..], "the stream ended 4 bytes before the end of a frame"),
            (&[255; 4], "a frame of 4294967295 bytes: expected at most 4194304"),
            (&[1, 0, 0, 0, 200], "a frame that does not read as Request: "),
        ] {
            let bytes = [&opening(Purpose::Request), tail].concat();
            let told = say(&lab, &bytes).await.to_string();
            assert!(told.starts_with(why), "{told}");
        }
        let told = say(&lab, &opening(Purpose::Agent)[..3]).await.to_string();
        assert!(told.starts_with("the stream ended 1 bytes before"), "{told}");
        assert_eq!(
            calm.request(&Request::Cancel(JobId(1))).await.unwrap(),
            Reply::Cancelled,
            "another connection suffers"
        );
    });
}

#[test]
fn content_travels_whole_and_is_checked() {
    run(async {
        let lab = Lab::start();
        let client = Client::connect(&lab.identity(Admission::Enrolled), None).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input");
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (hash, size_bytes) = blob::hash_file(&path).await.unwrap();
        assert_eq!(hash, blob::hash_bytes(&content));
        client.put_file(&path, hash, size_bytes).await.unwrap();
        assert_eq!(client.get_bytes(hash).await.unwrap(), content);
        let empty = client.put_bytes(b"").await.unwrap();
        assert_eq!(client.get_bytes(empty).await.unwrap(), b"");

        lab.blobs.lock().unwrap().insert(hash, b"something else".to_vec());
        let error = client.get_bytes(hash).await.unwrap_err().to_string();
        assert!(error.contains("arrived as other content: its hash is"), "{error}");
        let error = client.put_file(&path, hash, size_bytes + 1).await.unwrap_err().to_string();
        assert!(error.starts_with("the content changed while it was sent: 3000000"), "{error}");
        let error = client.get_bytes(blob::hash_bytes(b"never")).await.unwrap_err();
        assert!(error.to_string().ends_with("is not here"), "{error}");
    });
}

#[test]
fn a_put_that_is_refused_half_way_gives_the_reason() {
    run(async {
        let lab = Lab::start();
        let client = Client::connect(&lab.identity(Admission::Enrolled), None).await.unwrap();
        let mut content = b"unwanted".to_vec();
        content.resize(8 << 20, 0);
        let error = client.put_bytes(&content).await.unwrap_err();
        assert_eq!(error.to_string(), "no space left");
    });
}

#[test]
fn a_connection_survives_a_change_of_address() {
    run(async {
        let lab = Lab::start();
        let client = Client::connect(&lab.identity(Admission::Enrolled), None).await.unwrap();
        let ask = || async { client.request(&Request::Cancel(JobId(1))).await.unwrap() };
        assert_eq!(ask().await, Reply::Cancelled);
        let elsewhere = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.link().endpoint.rebind(elsewhere).unwrap();
        assert_eq!(ask().await, Reply::Cancelled);
    });
}

#[test]
fn a_killed_and_restarted_coordinator_is_noticed_at_the_next_word() {
    // A runtime that is dropped ends like a process that is killed: nobody
    // says goodbye.
    let (born, birth) = std::sync::mpsc::channel();
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let first_life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let lab = Lab::start();
            let identity = lab.identity(Admission::Enrolled);
            born.send((lab.endpoint.local_addr().unwrap(), identity, lab.parts())).unwrap();
            killed.await.unwrap();
        });
    });
    let (bind, identity, parts) = birth.recv().unwrap();
    run(async {
        let credentials = Credentials::Identity(&identity);
        let link = endpoint::connect(&bind.to_string(), credentials, None).await.unwrap();
        let (mut writer, mut reader) =
            stream::open(&link.connection, Purpose::Request).await.unwrap();
        writer.send(&Request::Cancel(JobId(1))).await.unwrap();
        assert_eq!(reader.expect::<Reply>().await, Ok(Reply::Cancelled));

        kill.send(()).unwrap();
        first_life.join().unwrap();
        let second = parts.again(bind);
        writer.send(&Request::Cancel(JobId(2))).await.unwrap();
        assert_eq!(reader.next::<Reply>().await, Err(StreamError::Ended(Ended::Restarted)));
        assert_eq!(ask(&identity, &second).await.unwrap(), Reply::Cancelled);
    });
}

#[test]
fn an_address_where_nobody_answers_is_named() {
    run(async {
        let lab = Lab::start();
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let identity = lab.identity(Admission::Enrolled);
        let error = Client::connect(&identity, Some(&address)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot reach the coordinator at {address}: no answer within 5 s")
        );
        assert!(error.hint().is_some());
    });
}

#[test]
fn a_name_with_several_addresses_is_dialled_until_one_answers() {
    run(async {
        let lab = Lab::start();
        let port = lab.endpoint.local_addr().unwrap().port();
        let identity = lab.identity(Admission::Enrolled);
        let client = Client::connect(&identity, Some(&format!("localhost:{port}"))).await.unwrap();
        assert_eq!(client.request(&Request::Cancel(JobId(1))).await.unwrap(), Reply::Cancelled);
    });
}

#[test]
fn what_is_no_address_is_refused_with_an_example() {
    run(async {
        for text in ["", "lab", "lab:", "lab:99999", ":4433", "::1:4433", "[::1]", "a b:1"] {
            let error = endpoint::resolve(text).await.unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "`{text}` is not an address: expected HOST:PORT, such as lab.example.org:4433"
                )
            );
        }
        assert_eq!(endpoint::resolve("[::1]:4433").await.unwrap().len(), 1);
    });
}

#[test]
fn an_error_names_its_cause_once_even_where_the_whole_chain_is_printed() {
    use std::error::Error;
    run(async {
        let lab = Lab::start();
        let taken = lab.endpoint.local_addr().unwrap();
        let admit: std::sync::Arc<endpoint::Admit> = std::sync::Arc::new(|_| Admission::Unknown);
        let error = endpoint::serve(taken, &lab.authority, admit).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot listen on {taken}: ")), "{error}");
        assert!(error.source().is_none());
    });
}
