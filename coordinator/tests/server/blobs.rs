//! Staged files over real connections.

use gleaner_common::id::ContentHash;
use gleaner_common::job::StagedFile;
use gleaner_common::wire::{BlobReply, Purpose, Reply, Request, Role};
use gleaner_shell::blob::hash_bytes;
use gleaner_shell::client::Client;
use gleaner_shell::stream;

use crate::coordinator::{Coordinator, config, refusal, spec, submit};

/// Announces one thing and sends another.
async fn put(client: &Client, hash: ContentHash, size_bytes: u64, content: &[u8]) -> BlobReply {
    let purpose = Purpose::Put { hash, size_bytes };
    let (mut writer, mut reader) = stream::open(&client.link().connection, purpose).await.unwrap();
    // The file may be refused before all of it is written.
    let _ = writer.send_raw(content).await;
    writer.finish();
    reader.expect().await.unwrap()
}

fn reason(reply: BlobReply) -> String {
    match reply {
        BlobReply::No { reason } => reason,
        BlobReply::Have { .. } => panic!("it was taken"),
    }
}

#[tokio::test]
async fn files_small_and_large_come_back_as_they_went() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let admin = coordinator.admin_client().await;
    let large: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
    for content in [&b""[..], b"hello", &large] {
        let hash = hash_bytes(content);
        assert_eq!(
            ada.request(&Request::Missing(vec![hash])).await.unwrap(),
            Reply::Missing(vec![hash])
        );
        assert_eq!(ada.put_bytes(content).await.unwrap(), hash);
        assert_eq!(
            ada.request(&Request::Missing(vec![hash])).await.unwrap(),
            Reply::Missing(vec![])
        );
        assert_eq!(admin.get_bytes(hash).await.unwrap(), content);
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn content_that_is_not_what_was_announced_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let hash = hash_bytes(b"hello");
    let refused = reason(put(&ada, hash, 5, b"jello").await);
    assert!(refused.starts_with("the content does not have the hash"), "{refused}");
    let refused = reason(put(&ada, hash, 5, b"hell").await);
    assert_eq!(refused, "the file ended after 4 of 5 bytes");
    let refused = reason(put(&ada, hash, 5, &vec![0; 400_000]).await);
    assert_eq!(refused, "more bytes than the 5 announced");
    let error = coordinator.admin_client().await.get_bytes(hash).await.unwrap_err().to_string();
    assert!(error.contains("no staged file"), "{error}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_file_over_the_limit_and_a_job_without_its_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.blob_bytes_max = 1_000;
    let coordinator = Coordinator::start_with(config).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let content = [7; 1_001];
    let refused = reason(put(&ada, hash_bytes(&content), 1_001, &content).await);
    assert!(refused.starts_with("the file is too large to stage"), "{refused}");

    let mut spec = spec(1);
    let hash = hash_bytes(b"data");
    let path = "data.txt".to_owned();
    spec.inputs = vec![StagedFile { path, hash, size_bytes: 4, executable: false }];
    let refused = refusal(&ada, Request::Submit(Box::new(spec.clone()))).await;
    assert!(refused.starts_with("input file `data.txt` is not staged"), "{refused}");
    ada.put_bytes(b"data").await.unwrap();
    submit(&ada, spec).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_staged_file_that_was_damaged_on_disk_is_not_taken_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let hash = ada.put_bytes(b"precious").await.unwrap();
    let name = hash.to_string();
    let path = dir.path().join("blobs").join(&name[..2]).join(&name[2..]);
    std::fs::write(path, b"tampered").unwrap();
    let error = coordinator.admin_client().await.get_bytes(hash).await.unwrap_err().to_string();
    assert!(error.contains(&name[..8]) || error.contains("hash"), "{error}");
    coordinator.stop().await;
}

/// A hash is no secret: it stands in logs and listings, and is guessed for what is
/// well known. Whoever named one in a job of theirs could read what it names.
#[tokio::test]
async fn to_know_a_hash_is_not_to_have_the_file_nor_to_learn_that_it_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let eve = coordinator.client(Role::User, "eve").await;
    let secret = ada.put_bytes(b"secret").await.unwrap();
    let nowhere = hash_bytes(b"nowhere");
    // Before a job names it and after, eve hears the same of it as of nothing.
    let input = |hash| StagedFile { path: "x".into(), hash, size_bytes: 6, executable: false };
    let naming = |hash| gleaner_common::job::JobSpec { inputs: vec![input(hash)], ..spec(1) };
    for _ in 0..2 {
        let missing = eve.request(&Request::Missing(vec![secret, nowhere])).await.unwrap();
        assert_eq!(missing, Reply::Missing(vec![secret, nowhere]));
        for hash in [secret, nowhere] {
            let refused = refusal(&eve, Request::Submit(Box::new(naming(hash)))).await;
            assert_eq!(refused, format!("input file `x` is not staged ({hash})"));
            let error = eve.get_bytes(hash).await.unwrap_err().to_string();
            assert!(error.contains("no staged file"), "{error}");
        }
        let none = ada.request(&Request::Missing(vec![secret])).await.unwrap();
        assert_eq!(none, Reply::Missing(vec![]), "she has sent it");
        submit(&ada, naming(secret)).await;
    }
    // To announce it is not enough either: it must be sent, all of it.
    let refused = reason(put(&eve, secret, 6, b"sec").await);
    assert_eq!(refused, "the file ended after 3 of 6 bytes");
    refusal(&eve, Request::Submit(Box::new(naming(secret)))).await;
    // Who has the content has it.
    eve.put_bytes(b"secret").await.unwrap();
    submit(&eve, naming(secret)).await;
    assert_eq!(eve.get_bytes(secret).await.unwrap(), b"secret");
    coordinator.stop().await;
}
