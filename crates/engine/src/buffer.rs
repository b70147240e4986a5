//! Memory of a rank, seen from the engine: the only place where addresses turn into bytes.

use allranks_numerics::threads;
use rayon::prelude::*;

/// A dense run of bytes that belongs to a rank.
///
/// Whoever makes one promises that the memory stays valid until the operation it was given to is complete (or the run
/// is aborted: the engine touches no buffer after that), and that nobody else uses it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buf {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: a Buf is an address and a length; `new` makes the maker answer for every use of the memory.
unsafe impl Send for Buf {}

/// Below this many bytes, waking other threads costs more than copying.
const PARALLEL_FROM: usize = 1 << 20;
/// What one thread copies at a time.
const BLOCK: usize = 1 << 18;

impl Buf {
    /// The `len` bytes at `ptr`.
    ///
    /// # Safety
    /// See [`Buf`]. `ptr` may be dangling if `len` is 0.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len }
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// No bytes at all.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address.
    pub(crate) fn ptr(self) -> *mut u8 {
        self.ptr
    }

    /// `len` bytes from `start` on; `None` if they are not all inside.
    pub fn part(self, start: usize, len: usize) -> Option<Self> {
        (start.checked_add(len)? <= self.len).then(|| {
            // SAFETY: start is inside, or one past the end with no bytes.
            Self { ptr: unsafe { self.ptr.add(start) }, len }
        })
    }
}

/// Copies each `from` to its `to`, of equal lengths. The targets must not overlap each other, nor another copy's
/// source; source and target of one copy may be the same memory.
pub(crate) fn copy_all(copies: &[(Buf, Buf)]) {
    let total: usize = copies.iter().map(|(from, _)| from.len).sum();
    let Some(threads) = (total >= PARALLEL_FROM).then(threads::available).flatten() else {
        for &(from, to) in copies {
            copy(from, to);
        }
        return;
    };
    let blocks: Vec<(Buf, Buf)> = copies
        .iter()
        .flat_map(|&(from, to)| {
            (0..from.len).step_by(BLOCK).map(move |at| {
                let len = BLOCK.min(from.len - at);
                (from.part(at, len).expect("inside"), to.part(at, len).expect("lengths are equal"))
            })
        })
        .collect();
    threads.run(|| blocks.into_par_iter().for_each(|(from, to)| copy(from, to)));
}

fn copy(from: Buf, to: Buf) {
    assert_eq!(from.len, to.len, "both sides of a copy are equally long");
    if from.len > 0 && from.ptr != to.ptr {
        // SAFETY: both are valid for their length by the promise of `Buf::new`; `copy` allows overlap.
        unsafe { std::ptr::copy(from.ptr, to.ptr, from.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buf(bytes: &mut [u8]) -> Buf {
        // SAFETY: the slices outlive the tests' use of the Buf.
        unsafe { Buf::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn parts_stay_inside() {
        let mut bytes = [1, 2, 3, 4];
        let whole = buf(&mut bytes);
        assert_eq!(whole.part(1, 2).map(Buf::len), Some(2));
        assert_eq!(whole.part(4, 0).map(Buf::len), Some(0));
        assert_eq!(whole.part(3, 2), None);
        assert_eq!(whole.part(usize::MAX, 2), None);
    }

    #[test]
    fn copies() {
        let (mut a, mut b) = ([1u8, 2, 3], [0u8; 3]);
        copy_all(&[(buf(&mut a), buf(&mut b))]);
        assert_eq!(b, [1, 2, 3]);
    }
}
