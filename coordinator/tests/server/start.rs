//! What keeps a coordinator from starting, in one line each.

use gleaner_coordinator::serve;

use crate::coordinator::{Coordinator, config};

async fn refusal(config: &gleaner_coordinator::CoordinatorConfig) -> String {
    Box::pin(serve(config, |_| (), std::future::pending())).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_second_coordinator_on_the_same_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let refused = refusal(&config(dir.path())).await;
    assert!(refused.starts_with("another coordinator uses "), "{refused}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let coordinator = Coordinator::start(first.path()).await;
    let mut config = config(second.path());
    config.listen = coordinator.address;
    let refused = refusal(&config).await;
    let expected = format!("cannot listen on {}: ", coordinator.address);
    assert!(refused.starts_with(&expected), "{refused}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_database_of_somebody_else_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.sqlite");
    std::fs::write(&path, b"my shopping list, which is longer than a header").unwrap();
    let refused = refusal(&config(dir.path())).await;
    assert!(refused.contains("is not a coordinator's database"), "{refused}");
    assert!(std::fs::read(&path).unwrap().starts_with(b"my shopping list"));
}

#[tokio::test]
async fn a_database_that_is_gone_is_not_taken_for_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    Coordinator::start(dir.path()).await.stop().await;
    let path = dir.path().join("coordinator.sqlite");
    std::fs::remove_file(&path).unwrap();
    let refused = refusal(&config(dir.path())).await;
    assert!(refused.contains("is gone, and its authority is there"), "{refused}");
    assert!(!path.exists());
}

#[tokio::test]
async fn an_authority_that_is_gone_is_not_made_anew_beside_whom_it_certified() {
    let dir = tempfile::tempdir().unwrap();
    Coordinator::start(dir.path()).await.stop().await;
    for file in gleaner_shell::identity::AUTHORITY_FILES {
        std::fs::remove_file(dir.path().join(file)).unwrap();
    }
    let refused = refusal(&config(dir.path())).await;
    assert!(refused.starts_with("the authority in "), "{refused}");
}
