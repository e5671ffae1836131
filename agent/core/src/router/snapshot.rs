//! Parts of snapshots: a rank's endpoint and the state it saved last, as a blob
//! at the coordinator, and back.

use bytes::Bytes;
use gleaner_common::id::{ContentHash, Fence};
use gleaner_common::time::Moment;
use gleaner_common::units::spoken_size;
use gleaner_program_core::address::{Boundary, Snapshot};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::endpoint::{Back, Endpoint, Event, PipeRest};
use gleaner_program_core::wire::FromRank;
use serde::{Deserialize, Serialize};

use super::imaging::{Kept, way_back};
use super::local_rank::LocalRank;
use super::moving::PackedRank;
use super::saved_states::STATES_BYTES_MAX;
use super::shell::{Image as _, IoRequest, Note, Shell};
use super::{Begin, Router, RouterEvent};

/// The biggest image that is part of a snapshot: as much as a rank may save.
const IMAGE_BYTES_MAX: u64 = STATES_BYTES_MAX as u64;

/// A rank's part, of the version of the endpoint in it. The image follows, of one
/// that goes back to an image.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    packed_rank: PackedRank,
    /// What was in the pipes of the image's process.
    rest: Option<PipeRest>,
}

impl<S: Shell> Router<S> {
    /// The rank's part of a snapshot, to be staged.
    pub(super) fn cut(
        &mut self,
        fence: Fence,
        snapshot: Snapshot,
        boundary: Boundary,
        state: Vec<u8>,
    ) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        local_rank.cut = None;
        let kept = match way_back(local_rank) {
            Ok(kept) => kept,
            Err(because) => return self.no_cut(fence, snapshot, because),
        };
        let bytes = kept.as_ref().map_or(0, |kept| kept.image.bytes());
        if bytes > IMAGE_BYTES_MAX {
            let (bytes, most) = (spoken_size(bytes), spoken_size(IMAGE_BYTES_MAX));
            let because = format!("its image takes {bytes}: at most {most} are saved");
            return self.no_cut(fence, snapshot, because);
        }
        let (endpoint, states) = (Bytes::from(state), local_rank.states.only(boundary));
        let packed_rank = PackedRank { endpoint, states, retreated: false, left: false };
        let (rest, image) = kept.map(|Kept { rest, image, .. }| (rest, image)).unzip();
        match postcard::to_stdvec(&Part { packed_rank, rest }) {
            Ok(bytes) => {
                let bytes = bytes.into();
                self.outgoing.shell.have(IoRequest::Stage { fence, snapshot, bytes, image });
            }
            Err(error) => self.no_cut(fence, snapshot, error.to_string()),
        }
    }

    pub(super) fn staged(
        &mut self,
        fence: Fence,
        snapshot: Snapshot,
        part: Result<(ContentHash, u64), String>,
    ) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        match part {
            Ok((part, size_bytes)) => {
                let said = FromRank::Cut { snapshot, part, size_bytes };
                self.outgoing.tell(fence, local_rank.life, &said);
                local_rank.cut = Some(said);
            }
            Err(because) => self.no_cut(fence, snapshot, because),
        }
    }

    fn no_cut(&mut self, fence: Fence, snapshot: Snapshot, because: String) {
        let Some(local_rank) = self.local_ranks.get(&fence) else { return };
        let (life, rank) = (local_rank.life, local_rank.rank());
        self.outgoing.tell(fence, life, &FromRank::NoCut(snapshot));
        self.complained(fence, &Complaint::NoCut { rank, snapshot, because });
    }

    // ── going back ─────────────────────────────────────────────────────────

    /// The process may say Hello meanwhile: its pipes are not read before.
    pub(super) fn begin_with_cut(&mut self, begin: Begin<S::Ends>, hash: ContentHash) {
        let fence = begin.fence;
        self.fetching.insert(fence, begin);
        self.outgoing.shell.have(IoRequest::Fetch { fence, hash });
    }

    pub(super) fn fetched(&mut self, now: Moment, fence: Fence, part: Result<Vec<u8>, String>) {
        let Some(begin) = self.fetching.remove(&fence) else { return };
        let rank = begin.config.rank;
        if let Err(error) = part.and_then(|part| self.go_back(now, begin, &part)) {
            // With its pipes closed its process ends, and the program with it.
            self.outgoing.shell.note(Note::NotBack { rank, error });
        }
    }

    fn go_back(&mut self, now: Moment, begin: Begin<S::Ends>, part: &[u8]) -> Result<(), String> {
        let Begin { fence, job, life, config, ends, .. } = begin;
        let (Part { packed_rank: part, rest }, image) =
            postcard::take_from_bytes(part).map_err(|error| error.to_string())?;
        let mut endpoint = Endpoint::restore(&part.endpoint, fence, config.floor)
            .map_err(|error| error.to_string())?;
        if endpoint.rank() != config.rank {
            return Err(format!("it is the part of {}", endpoint.rank()));
        }
        if let Some(rest) = rest {
            let endpoint = Bytes::from(endpoint.pack(&rest));
            let bytes = postcard::to_stdvec(&PackedRank { endpoint, ..part });
            let (bytes, image) = (bytes.map_err(|error| error.to_string())?, image.to_vec());
            self.outgoing.shell.say(RouterEvent::HasImage { fence, bytes, image, ends });
            return Ok(());
        }
        let Some(slabs) = self.enter(job, life, config.rank, fence) else { return Ok(()) };
        let mut local_rank = LocalRank::new(job, life, endpoint, slabs);
        local_rank.states = part.states;
        local_rank.plug(&mut self.outgoing.shell, ends).map_err(|error| error.to_string())?;
        self.local_ranks.insert(fence, local_rank);
        self.handle(now, fence, Event::Arrived);
        self.handle(now, fence, Event::RolledBack(Back::Process));
        self.is_here(now, job, config.rank, fence);
        self.hear_early(now, fence);
        Ok(())
    }
}
