//! QUIC's settings, chosen for ten thousand quiet connections on one server.

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt,
};

/// A connection that was silent for so long is gone. Twice the heartbeat of an
/// agent without guests (15 s), so that one lost heartbeat ends nothing.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How much a peer may send unread, per stream and per connection. 256 KiB
/// moves 1 GB/s at a round trip of 0.25 ms, which a lab's network has; it is
/// memory only while somebody does not read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const WINDOW_BYTES: u32 = 512 << 10;
const SEND_WINDOW_BYTES: u64 = 512 << 10;

/// Streams that a peer may have open at once. quinn keeps tables with room for
/// all of them: 28 fill theirs to the brim (7/8 of 32), and 64 took 3.6 KiB
/// more on each connection (37.2 against 33.5 KB, measured over 1,000).
const STREAMS_MAX: u32 = 28;

/// To the collector, the coordinator opens one for each agent that has records
/// to deliver; one that is not read holds up none of the others.
const RELAYS_MAX: u32 = 16_384;
const RELAYS_WINDOW_BYTES: u32 = 64 << 20;

/// Between agents go guests' images, on few connections: 4 MiB moves 1 GB/s at
/// a round trip of 4 ms, which is a loaded machine's.
const PEERS_WINDOW_BYTES: u32 = 4 << 20;

/// What one datagram between agents may carry where the network takes it
/// (jumbo frames, one machine): each costs much more than its bytes do. quinn
/// gives the kernel ten at a time, which together must stay below 64 KiB.
const PEERS_DATAGRAM_BYTES: u16 = 6_500;

/// What an agent sends another before anything is acknowledged: ten datagrams
/// (RFC 9002 §7.2). quinn reckons with small ones, whose ten the probes of the
/// path fill; and up to quinn-proto 0.11.19 a full window also holds back the
/// word that closes a connection, so that nobody learns why it ended
/// (quinn-rs/quinn#2785).
const PEERS_FIRST_BYTES: u64 = 10 * PEERS_DATAGRAM_BYTES as u64;

/// A datagram that only acknowledges costs as much as one that carries: one for
/// so many, not for every other (draft-ietf-quic-ack-frequency).
const PEERS_ACKNOWLEDGED_AT_ONCE: u32 = 16;

/// What a connection's other side opens streams for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Requests,
    Relays,
    Peers,
}

pub(super) fn settings(load: Load, keep_alive: Option<Duration>) -> Arc<TransportConfig> {
    let (streams_max, stream_bytes, window_bytes) = match load {
        Load::Requests => (STREAMS_MAX, STREAM_WINDOW_BYTES, WINDOW_BYTES),
        Load::Relays => (RELAYS_MAX, STREAM_WINDOW_BYTES, RELAYS_WINDOW_BYTES),
        Load::Peers => (STREAMS_MAX, PEERS_WINDOW_BYTES, 2 * PEERS_WINDOW_BYTES),
    };
    let send_bytes = if load == Load::Peers { window_bytes.into() } else { SEND_WINDOW_BYTES };
    let mut settings = TransportConfig::default();
    let idle = IdleTimeout::try_from(IDLE_TIMEOUT)
        .unwrap_or_else(|_| unreachable!("30 s fit in a QUIC integer"));
    settings
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(keep_alive)
        .stream_receive_window(VarInt::from_u32(stream_bytes))
        .receive_window(VarInt::from_u32(window_bytes))
        .send_window(send_bytes)
        .max_concurrent_bidi_streams(VarInt::from_u32(streams_max))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None);
    if load == Load::Peers {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(PEERS_DATAGRAM_BYTES);
        settings.mtu_discovery_config(Some(discovery));
        let mut acknowledgements = AckFrequencyConfig::default();
        acknowledgements.ack_eliciting_threshold(VarInt::from_u32(PEERS_ACKNOWLEDGED_AT_ONCE));
        settings.ack_frequency_config(Some(acknowledgements));
        let mut congestion = CubicConfig::default();
        congestion.initial_window(PEERS_FIRST_BYTES);
        settings.congestion_controller_factory(Arc::new(congestion));
    }
    Arc::new(settings)
}

/// An endpoint's part of it: what it receives at most at once.
pub(super) fn of_peers() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(PEERS_DATAGRAM_BYTES)
        .unwrap_or_else(|_| unreachable!("QUIC's least is 1,200"));
    config
}
