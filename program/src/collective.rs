//! Operations that all ranks of a group take part in, made of messages
//! between two ranks each.
//!
//! | operation | messages |
//! |---|---|
//! | barrier | dissemination (Hensgen, Finkel and Manber 1988) |
//! | broadcast, reduce | binomial tree |
//! | allreduce | recursive doubling on 2^k ranks, else reduce and broadcast |
//! | gather, scatter | each rank and the root |
//! | all-to-all | pairwise, step i with the ranks i to the right and left |
//!
//! Every rank of the group calls the same operations in the same order. The
//! importer expands other programs' collectives in the same way.

use gleaner_common::trace::tags;

use crate::communicator::Communicator;
use crate::error::Error;
use crate::value::Value;

/// Some ranks of a program, this one among them.
pub struct Group<'a> {
    comm: &'a mut Communicator,
    ranks: Vec<u32>,
    /// This rank's place in `ranks`.
    mine: usize,
}

/// Among all ranks that began together.
impl Communicator {
    /// A group of ranks, named alike and in the same order by each of them.
    ///
    /// # Errors
    /// This rank is not of them.
    pub fn group(&mut self, ranks: impl IntoIterator<Item = u32>) -> Result<Group<'_>, Error> {
        let ranks: Vec<u32> = ranks.into_iter().collect();
        let rank = self.rank();
        let mine = ranks.iter().position(|other| *other == rank);
        let mine = mine.ok_or(Error::NotOfGroup { rank })?;
        Ok(Group { comm: self, ranks, mine })
    }

    fn all(&mut self) -> Result<Group<'_>, Error> {
        self.group(self.members())
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// As [`Communicator::recv`], like all below.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.all()?.barrier()
    }

    /// Gives everybody the root's values; only the root's own count.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn broadcast<T: Value>(&mut self, root: u32, values: Vec<T>) -> Result<Vec<T>, Error> {
        self.all()?.broadcast(root, values)
    }

    /// Combines everybody's values, place by place, at the root. `combine` is
    /// associative and commutative; its order is the same in every run.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; lists of different lengths.
    pub fn reduce<T: Value>(
        &mut self,
        root: u32,
        values: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>, Error> {
        self.all()?.reduce(root, values, combine)
    }

    /// As `reduce`, and everybody gets the result.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn allreduce<T: Value>(
        &mut self,
        values: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Vec<T>, Error> {
        self.all()?.allreduce(values, combine)
    }

    /// Brings everybody's values to the root, which gets them by rank.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn gather<T: Value>(
        &mut self,
        root: u32,
        values: &[T],
    ) -> Result<Option<Vec<Vec<T>>>, Error> {
        self.all()?.gather(root, values)
    }

    /// Gives each rank its part of the root's parts; only the root's count.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; not one part for each rank.
    pub fn scatter<T: Value>(&mut self, root: u32, parts: &[Vec<T>]) -> Result<Vec<T>, Error> {
        self.all()?.scatter(root, parts)
    }

    /// Gives each rank its part of everybody's; the result is by sender.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; not one part for each rank.
    pub fn all_to_all<T: Value>(&mut self, parts: Vec<Vec<T>>) -> Result<Vec<Vec<T>>, Error> {
        self.all()?.all_to_all(parts)
    }
}

/// As the [`Communicator`]'s operations of the same names. A root is a rank of
/// the program, and of the group.
#[expect(clippy::missing_errors_doc, reason = "as the communicator's operations of the same names")]
impl Group<'_> {
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The rank that stands so many places to the right, in a circle.
    fn right(&self, places: usize) -> u32 {
        self.ranks[(self.mine + places) % self.size()]
    }

    fn left(&self, places: usize) -> u32 {
        self.ranks[(self.mine + self.size() - places % self.size()) % self.size()]
    }

    /// How many places this rank stands to the right of the root.
    fn place_after(&self, root: u32) -> Result<usize, Error> {
        let place = self.ranks.iter().position(|rank| *rank == root);
        let place = place.ok_or(Error::NotOfGroup { rank: root })?;
        Ok((self.mine + self.size() - place) % self.size())
    }

    pub fn barrier(&mut self) -> Result<(), Error> {
        let mut distance = 1;
        while distance < self.size() {
            let (right, left) = (self.right(distance), self.left(distance));
            self.comm.send_tagged::<u8>(right, tags::BARRIER, &[])?;
            self.comm.recv_tagged::<u8>(Some(left), tags::BARRIER)?;
            distance *= 2;
        }
        Ok(())
    }

    pub fn broadcast<T: Value>(&mut self, root: u32, values: Vec<T>) -> Result<Vec<T>, Error> {
        let (here, size) = (self.place_after(root)?, self.size());
        let mut values = values;
        // The lowest set bit says from how far the values come.
        let mut distance = 1;
        while distance < size && here & distance == 0 {
            distance *= 2;
        }
        if here != 0 {
            values = self.comm.recv_tagged(Some(self.left(distance)), tags::BROADCAST)?;
        }
        while distance > 1 {
            distance /= 2;
            if here + distance < size {
                self.comm.send_tagged(self.right(distance), tags::BROADCAST, &values)?;
            }
        }
        Ok(values)
    }

    pub fn reduce<T: Value>(
        &mut self,
        root: u32,
        values: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>, Error> {
        let (here, size) = (self.place_after(root)?, self.size());
        let mut values = values.to_vec();
        let mut distance = 1;
        while distance < size {
            if here & distance != 0 {
                self.comm.send_tagged(self.left(distance), tags::REDUCE, &values)?;
                return Ok(None);
            }
            if here + distance < size {
                let from = self.right(distance);
                let theirs = self.comm.recv_tagged(Some(from), tags::REDUCE)?;
                merge(&mut values, &theirs, from, &combine)?;
            }
            distance *= 2;
        }
        Ok(Some(values))
    }

    pub fn allreduce<T: Value>(
        &mut self,
        values: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Vec<T>, Error> {
        let size = self.size();
        if !size.is_power_of_two() {
            let root = self.ranks[0];
            let reduced = self.reduce(root, values, combine)?;
            return self.broadcast(root, reduced.unwrap_or_default());
        }
        let mut values = values.to_vec();
        let mut distance = 1;
        while distance < size {
            let partner = self.ranks[self.mine ^ distance];
            self.comm.send_tagged(partner, tags::ALLREDUCE, &values)?;
            let mut theirs = self.comm.recv_tagged(Some(partner), tags::ALLREDUCE)?;
            // In the same order on both sides, so that both get the same bits.
            if self.mine & distance != 0 {
                std::mem::swap(&mut values, &mut theirs);
            }
            merge(&mut values, &theirs, partner, &combine)?;
            distance *= 2;
        }
        Ok(values)
    }

    pub fn gather<T: Value>(
        &mut self,
        root: u32,
        values: &[T],
    ) -> Result<Option<Vec<Vec<T>>>, Error> {
        if self.place_after(root)? != 0 {
            self.comm.send_tagged(root, tags::GATHER, values)?;
            return Ok(None);
        }
        let mut all = vec![];
        for place in 0..self.size() {
            all.push(if place == self.mine {
                values.to_vec()
            } else {
                self.comm.recv_tagged(Some(self.ranks[place]), tags::GATHER)?
            });
        }
        Ok(Some(all))
    }

    pub fn scatter<T: Value>(&mut self, root: u32, parts: &[Vec<T>]) -> Result<Vec<T>, Error> {
        if self.place_after(root)? != 0 {
            return self.comm.recv_tagged(Some(root), tags::SCATTER);
        }
        self.check_parts(parts.len())?;
        for (place, part) in parts.iter().enumerate() {
            if place != self.mine {
                self.comm.send_tagged(self.ranks[place], tags::SCATTER, part)?;
            }
        }
        Ok(parts[self.mine].clone())
    }

    pub fn all_to_all<T: Value>(&mut self, mut parts: Vec<Vec<T>>) -> Result<Vec<Vec<T>>, Error> {
        self.check_parts(parts.len())?;
        let size = self.size();
        let mut received: Vec<Vec<T>> = (0..size).map(|_| vec![]).collect();
        received[self.mine] = std::mem::take(&mut parts[self.mine]);
        for distance in 1..size {
            let (to, from) = ((self.mine + distance) % size, (self.mine + size - distance) % size);
            self.comm.send_tagged(self.ranks[to], tags::ALL_TO_ALL, &parts[to])?;
            received[from] = self.comm.recv_tagged(Some(self.ranks[from]), tags::ALL_TO_ALL)?;
        }
        Ok(received)
    }

    fn check_parts(&self, found: usize) -> Result<(), Error> {
        let expected = self.size();
        if found == expected { Ok(()) } else { Err(Error::WrongParts { found, expected }) }
    }
}

fn merge<T: Value>(
    values: &mut [T],
    theirs: &[T],
    from: u32,
    combine: &impl Fn(T, T) -> T,
) -> Result<(), Error> {
    let (found, expected) = (theirs.len(), values.len());
    if found != expected {
        return Err(Error::UnequalLengths { from, found, expected });
    }
    for (mine, theirs) in values.iter_mut().zip(theirs) {
        *mine = combine(*mine, *theirs);
    }
    Ok(())
}
