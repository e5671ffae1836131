//! Is the network paid for by what it carries? `NetworkManager` knows, or the
//! configuration says so.

use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_shell::clock::Clock;
use zbus::export::futures_core::Stream as _;
use zbus::{Connection, MatchRule, MessageStream, OwnedVariant};

use super::Teller;
use crate::config::Metered;

const SERVICE: &str = "org.freedesktop.NetworkManager";
const PATH: &str = "/org/freedesktop/NetworkManager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// It may be installed, or start, later.
const RETRY: Duration = Duration::from_secs(300);

/// `NMMetered`: told by somebody, or guessed from the device.
const YES: u32 = 1;
const GUESS_YES: u32 = 3;

pub(super) async fn watch(metered: Metered, mut teller: Teller) {
    match metered {
        Metered::Yes => {
            teller.health(Health::Well);
            teller.see(Observation::Metered { by: Some("the configuration".into()) });
        }
        Metered::No => teller.health(Health::Absent("switched off: sensors.metered".into())),
        Metered::Ask => loop {
            let why = match listen(&mut teller).await {
                Ok(()) => "it does not run".to_owned(),
                Err(error) => error.to_string(),
            };
            teller.health(Health::Absent(format!("NetworkManager: {why}")));
            Clock.sleep(RETRY).await;
        },
    }
}

/// Listens until the bus goes.
async fn listen(teller: &mut Teller) -> zbus::Result<()> {
    let bus = Connection::system().await?;
    // Asking it for anything would start one that is installed and not wanted.
    let bus_itself = "org.freedesktop.DBus";
    let asked = bus.call_method(
        Some(bus_itself),
        "/org/freedesktop/DBus",
        Some(bus_itself),
        "NameHasOwner",
        &SERVICE,
    );
    if !asked.await?.body().deserialize::<bool>()? {
        return Ok(());
    }
    let rule = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(SERVICE)
        .path(PATH)
        .member("PropertiesChanged")
        .build()?;
    let mut changes = MessageStream::for_match_rule(rule, &bus, None).await?;
    let mut before = None;
    loop {
        let body = (SERVICE, "Metered");
        let reply = bus.call_method(Some(SERVICE), PATH, Some(PROPERTIES), "Get", &body).await?;
        let value: OwnedVariant = reply.body().deserialize()?;
        let now = u32::try_from(value).unwrap_or(0);
        teller.health(Health::Well);
        if before.replace(now) != Some(now) {
            let by = matches!(now, YES | GUESS_YES).then(|| "NetworkManager".to_owned());
            teller.see(Observation::Metered { by });
        }
        let next =
            std::future::poll_fn(|context| std::pin::Pin::new(&mut changes).poll_next(context));
        if next.await.transpose()?.is_none() {
            return Ok(());
        }
    }
}
