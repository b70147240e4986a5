//! The rules: which part of which buffer comes from where. Pure; no memory is touched.
//!
//! `N` is the size of the group, `r` this rank in it, `x` what this rank gives. "Peer" is what [`Fill`] says: under
//! `uniform` what this rank would give in its place, under `zeros` zeros, under `nan` NaN (zeros in integers, bool).
//!
//! | operation | what this rank ends with |
//! |---|---|
//! | all_reduce, reduce on the root | reduction of `x` and `N-1` peers; under `uniform` that of `N` times `x` |
//! | reduce elsewhere | its tensor as it was |
//! | broadcast | root: its tensor as it was. Elsewhere under `uniform` the same (the root holds what this rank holds), else peer |
//! | all_gather, gather on the root | part `r` is `x`, each other part peer: under `uniform` `x` again |
//! | scatter | root: its `r`-th tensor. Elsewhere peer: under `uniform` zeros, since this rank holds no list |
//! | reduce_scatter | reduction of its `r`-th part and `N-1` peers |
//! | all_to_all | part `r` is what it sends to itself, each other part peer: under `uniform` the same again |
//! | recv | peer: under `uniform` zeros, since the sender's tensor is not known |
//! | send, barrier, monitored_barrier | nothing changes |
//!
//! Where a part has another length than what it comes from (uneven all_gather or all_to_all), the source is repeated
//! or cut: element `i` is element `i mod len`; zeros if there is no element at all. So every element of an output is
//! written, or was the caller's input.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::Fill;

/// Whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The tensors that an operation writes; for operations in place, the only ones.
    Out,
    /// The tensors that it only reads.
    In,
}

/// Some consecutive elements of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which list of tensors.
    pub side: Side,
    /// Which of them.
    pub tensor: usize,
    /// First element.
    pub start: usize,
    /// How many elements.
    pub len: usize,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Combine the elements with those of the peers, in place.
    Reduce(Part),
    /// Fill `to` with the elements of `from`, repeated or cut.
    Copy {
        /// Destination.
        to: Part,
        /// Source.
        from: Part,
    },
    /// Write what a peer holds where this rank has nothing to say: zeros, or NaN.
    Peer(Part),
}

/// Steps in order.
pub type Steps = SmallVec<[Step; 2]>;

/// Why an operation cannot be carried out. This rank's own arguments disagree with each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A tensor has the wrong size.
    #[error("{what} has {found} elements where {expected} are needed")]
    Length {
        /// Which tensor.
        what: &'static str,
        /// What is needed.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A list has the wrong number of tensors or splits.
    #[error("{what} has {found} entries where {expected} are needed")]
    Count {
        /// Which list.
        what: &'static str,
        /// What is needed.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// The tensor cannot be split into equal parts.
    #[error("{what} has {found} elements, which is no multiple of the group size {parts}")]
    Indivisible {
        /// Which tensor.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The group size.
        parts: usize,
    },
    /// all_to_all: what this rank sends to itself is not what it expects from itself.
    #[error("this rank sends itself {sent} elements but expects {expected} from itself")]
    Own {
        /// Length of the input part.
        sent: usize,
        /// Length of the output part.
        expected: usize,
    },
}

/// One member of a group under a fill rule: all that the rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What peers hold.
    pub fill: Fill,
    /// This rank in the group, `r`.
    pub rank: usize,
    /// The group's size, `N`.
    pub size: usize,
}

fn out(tensor: usize, range: Range<usize>) -> Part {
    Part { side: Side::Out, tensor, start: range.start, len: range.len() }
}

fn input(tensor: usize, range: Range<usize>) -> Part {
    Part { side: Side::In, tensor, start: range.start, len: range.len() }
}

fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), PlanError> {
    if expected == found { Ok(()) } else { Err(PlanError::Length { what, expected, found }) }
}

fn count(what: &'static str, expected: usize, found: usize) -> Result<(), PlanError> {
    if expected == found { Ok(()) } else { Err(PlanError::Count { what, expected, found }) }
}

impl Rules {
    /// The elements from a peer: those of `from` if it holds what this rank holds.
    fn peer(&self, to: Part, from: Part) -> Step {
        if self.fill == Fill::Uniform { Step::Copy { to, from } } else { Step::Peer(to) }
    }

    /// A whole tensor: this rank's own part (`mine`) from `from`, the rest from peers. Under `uniform`, parts are equal.
    fn spread(&self, tensor: usize, total: usize, mine: Range<usize>, from: Part) -> Steps {
        if self.fill == Fill::Uniform {
            return smallvec![Step::Copy { to: out(tensor, 0..total), from }];
        }
        smallvec![
            Step::Peer(out(tensor, 0..mine.start)),
            Step::Copy { to: out(tensor, mine.clone()), from },
            Step::Peer(out(tensor, mine.end..total)),
        ]
    }

    /// all_reduce, in place, of each tensor.
    pub fn all_reduce(&self, lens: &[usize]) -> Steps {
        lens.iter().enumerate().map(|(i, &len)| Step::Reduce(out(i, 0..len))).collect()
    }

    /// reduce, in place.
    pub fn reduce(&self, lens: &[usize], root: usize) -> Steps {
        if root == self.rank { self.all_reduce(lens) } else { Steps::new() }
    }

    /// broadcast, in place.
    pub fn broadcast(&self, lens: &[usize], root: usize) -> Steps {
        if root == self.rank || self.fill == Fill::Uniform {
            return Steps::new();
        }
        self.receive(lens)
    }

    /// recv, in place; and what a rank gets that has nothing to compare with.
    pub fn receive(&self, lens: &[usize]) -> Steps {
        lens.iter().enumerate().map(|(i, &len)| Step::Peer(out(i, 0..len))).collect()
    }

    /// all_gather into one tensor.
    ///
    /// # Errors
    /// If the output is not `N` times as long as the input.
    pub fn all_gather_single(&self, out_len: usize, in_len: usize) -> Result<Steps, PlanError> {
        self.all_gather_single_at(0, out_len, in_len)
    }

    /// The same for the `tensor`-th of several inputs and outputs.
    ///
    /// # Errors
    /// As for [`Rules::all_gather_single`].
    pub fn all_gather_single_at(&self, tensor: usize, out_len: usize, in_len: usize) -> Result<Steps, PlanError> {
        expect("the output of all_gather_into_tensor", self.size * in_len, out_len)?;
        let from = input(tensor, 0..in_len);
        Ok(self.spread(tensor, out_len, self.rank * in_len..(self.rank + 1) * in_len, from))
    }

    /// all_gather into a list, which begins at output tensor `first`; from input tensor `tensor`.
    ///
    /// # Errors
    /// If there are not `N` outputs, or the own one has another length than the input.
    pub fn all_gather(&self, first: usize, outs: &[usize], tensor: usize, in_len: usize) -> Result<Steps, PlanError> {
        count("the output list of all_gather", self.size, outs.len())?;
        expect("the own part of the output list", in_len, outs[self.rank])?;
        let from = input(tensor, 0..in_len);
        let step = |(j, &len): (usize, &usize)| {
            let to = out(first + j, 0..len);
            if j == self.rank { Step::Copy { to, from } } else { self.peer(to, from) }
        };
        Ok(outs.iter().enumerate().map(step).collect())
    }

    /// gather; `outs` is empty except on the root.
    ///
    /// # Errors
    /// As for [`Rules::all_gather`], on the root.
    pub fn gather(&self, outs: &[usize], in_len: usize, root: usize) -> Result<Steps, PlanError> {
        if root == self.rank { self.all_gather(0, outs, 0, in_len) } else { Ok(Steps::new()) }
    }

    /// scatter; `ins` is empty except on the root.
    ///
    /// # Errors
    /// On the root, if there are not `N` inputs or the own one has another length than the output.
    pub fn scatter(&self, out_len: usize, ins: &[usize], root: usize) -> Result<Steps, PlanError> {
        if root != self.rank {
            return Ok(self.receive(&[out_len]));
        }
        count("the input list of scatter", self.size, ins.len())?;
        expect("the own part of the input list", out_len, ins[self.rank])?;
        Ok(smallvec![Step::Copy { to: out(0, 0..out_len), from: input(self.rank, 0..out_len) }])
    }

    /// reduce_scatter of one tensor: from input tensor `tensor` to output tensor `tensor`.
    ///
    /// # Errors
    /// If the input is not `N` times as long as the output.
    pub fn reduce_scatter_single(&self, tensor: usize, out_len: usize, in_len: usize) -> Result<Steps, PlanError> {
        expect("the input of reduce_scatter_tensor", self.size * out_len, in_len)?;
        let from = input(tensor, self.rank * out_len..(self.rank + 1) * out_len);
        let to = out(tensor, 0..out_len);
        Ok(smallvec![Step::Copy { to, from }, Step::Reduce(to)])
    }

    /// reduce_scatter of a list.
    ///
    /// # Errors
    /// If there are not `N` inputs or the own one has another length than the output.
    pub fn reduce_scatter(&self, out_len: usize, ins: &[usize]) -> Result<Steps, PlanError> {
        count("the input list of reduce_scatter", self.size, ins.len())?;
        expect("the own part of the input list", out_len, ins[self.rank])?;
        let to = out(0, 0..out_len);
        Ok(smallvec![Step::Copy { to, from: input(self.rank, 0..out_len) }, Step::Reduce(to)])
    }

    /// all_to_all of lists.
    ///
    /// # Errors
    /// If there are not `N` tensors on each side, or the own parts differ in length.
    pub fn all_to_all(&self, outs: &[usize], ins: &[usize]) -> Result<Steps, PlanError> {
        count("the output list of all_to_all", self.size, outs.len())?;
        count("the input list of all_to_all", self.size, ins.len())?;
        self.own(ins[self.rank], outs[self.rank])?;
        let from = input(self.rank, 0..ins[self.rank]);
        let step = |(j, &len): (usize, &usize)| {
            let to = out(j, 0..len);
            if j == self.rank { Step::Copy { to, from } } else { self.peer(to, from) }
        };
        Ok(outs.iter().enumerate().map(step).collect())
    }

    /// all_to_all of parts of one tensor; empty splits stand for `N` equal parts. Splits count elements here.
    ///
    /// # Errors
    /// If the splits do not add up to the tensors, or the own parts differ in length.
    pub fn all_to_all_single(
        &self,
        out_len: usize,
        in_len: usize,
        out_splits: &[usize],
        in_splits: &[usize],
    ) -> Result<Steps, PlanError> {
        let from = self.own_split("the input of all_to_all_single", in_len, in_splits)?;
        let mine = self.own_split("the output of all_to_all_single", out_len, out_splits)?;
        self.own(from.len(), mine.len())?;
        let from = input(0, from);
        let even = out_splits.iter().all(|&len| len == mine.len());
        if self.fill != Fill::Uniform || even {
            return Ok(self.spread(0, out_len, mine, from));
        }
        let mut start = 0;
        let part = |&len: &usize| {
            let to = out(0, start..start + len);
            start += len;
            Step::Copy { to, from }
        };
        Ok(out_splits.iter().map(part).collect())
    }

    fn own(&self, sent: usize, expected: usize) -> Result<(), PlanError> {
        if sent == expected { Ok(()) } else { Err(PlanError::Own { sent, expected }) }
    }

    /// The part that a rank exchanges with itself.
    fn own_split(&self, what: &'static str, len: usize, splits: &[usize]) -> Result<Range<usize>, PlanError> {
        if splits.is_empty() {
            if !len.is_multiple_of(self.size) {
                return Err(PlanError::Indivisible { what, found: len, parts: self.size });
            }
            let part = len / self.size;
            return Ok(self.rank * part..(self.rank + 1) * part);
        }
        count("the list of splits", self.size, splits.len())?;
        expect(what, splits.iter().sum(), len)?;
        let start = splits[..self.rank].iter().sum();
        Ok(start..start + splits[self.rank])
    }
}
