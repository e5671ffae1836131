//! What a rank does about being moved, begun again, or sent away: state saved
//! at subtask boundaries, and the retreat.

use crate::communicator::{Communicator, Standing};
use crate::error::Error;
use crate::transport::Order;

impl Communicator {
    /// Keeps the state of this rank, in place of what it saved before. To be
    /// called at a subtask's end: what was received before is not sent again.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn save(&mut self, state: &[u8]) -> Result<(), Error> {
        self.call(|this| {
            this.save_asked = false;
            this.order(Order::Save(state.to_vec()))
        })
    }

    /// Marks a subtask's end, in a program that does not save: where it may go
    /// back, its agent takes an image of its process here now and then, and
    /// what comes after this call is done again after going back. The rank
    /// stands still meanwhile; a call where none is taken costs next to
    /// nothing.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn boundary(&mut self) -> Result<(), Error> {
        self.call(|this| {
            this.save_asked = false;
            this.order(Order::Boundary)
        })
    }

    /// Is the state wanted now, for a checkpoint of the whole program? For
    /// those to whom saving at every subtask's end is dear.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn wants_state(&mut self) -> Result<bool, Error> {
        self.call(|this| Ok(this.save_asked))
    }

    /// What this rank saved last, if it is begun again; then nothing until
    /// then is to be repeated.
    pub fn restore(&mut self) -> Option<Vec<u8>> {
        self.beginning.state.take()
    }

    /// What to do when the workstation is wanted back: the handler runs inside
    /// this rank's next call, or the one that waits. It may report what is
    /// done, return the rest, and put new tasks in for what is left of one
    /// (Piranha's retreat; Phalen 1994, §4.1.1). Afterwards that call and all
    /// later ones give [`Error::Retreated`]. Without a handler, what this rank
    /// has in hand goes back to the bag.
    pub fn on_retreat(
        &mut self,
        handler: impl FnOnce(&mut Self) -> Result<(), Error> + Send + 'static,
    ) {
        self.retreat_handler = Some(Box::new(handler));
    }

    /// Was this rank asked to retreat? Only its handler can see it so.
    pub fn is_retreating(&self) -> bool {
        self.standing == Standing::Retreating
    }

    /// Ends this rank's part before its function returns: its workstation is
    /// free, and whoever waits for it hears of it.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn leave(&mut self) -> Result<(), Error> {
        self.call(|this| {
            this.order(Order::Leave)?;
            this.standing = Standing::Left;
            Ok(())
        })
    }
}
