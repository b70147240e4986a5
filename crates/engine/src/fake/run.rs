//! Steps carried out on raw memory.

use std::ptr;

use allranks_core::{Dtype, ReduceOp};
use allranks_numerics::Unsupported;

use super::combine::combine;
use super::plan::{Part, Side, Step};
use super::{Fill, Rules};

/// A dense buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Element type.
    pub dtype: Dtype,
    /// Its first byte; may be null if there are no elements.
    pub data: *mut u8,
    /// How many elements.
    pub numel: usize,
}

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    /// The reduce op.
    pub op: ReduceOp,
    /// The factor of [`ReduceOp::PremulSum`].
    pub factor: f64,
}

impl Op {
    /// An op without a factor.
    pub const fn plain(op: ReduceOp) -> Self {
        Self { op, factor: 1.0 }
    }
}

/// Carries out `steps`. Inputs may lie inside outputs where the real operation allows that (`all_gather_into_tensor`
/// with the input being the own part).
///
/// # Errors
/// If there is no such reduction; nothing that a reduction would have to write is written then.
///
/// # Safety
/// Each buffer is valid for reads, and each output for writes, of `numel` elements of its dtype, and nobody else uses
/// them meanwhile.
///
/// # Panics
/// If the steps were planned for other lengths, or a copy would change the dtype.
pub unsafe fn run(steps: &[Step], rules: &Rules, op: Op, outs: &[Buffer], ins: &[Buffer]) -> Result<(), Unsupported> {
    let place = |part: Part| -> Buffer {
        let whole = match part.side {
            Side::Out => outs[part.tensor],
            Side::In => ins[part.tensor],
        };
        assert!(part.start + part.len <= whole.numel, "steps were planned for these buffers");
        let data = whole.data.wrapping_add(part.start * whole.dtype.size());
        Buffer { data, numel: part.len, dtype: whole.dtype }
    };
    for step in steps {
        match *step {
            // SAFETY: the part is inside the buffer, by the assertion in `place`; so are those below.
            Step::Reduce(part) => unsafe { combine(op, rules, place(part))? },
            Step::Copy { to, from } => {
                let (to, from) = (place(to), place(from));
                assert_eq!(to.dtype, from.dtype, "a copy keeps the dtype");
                // SAFETY: see above.
                unsafe { repeat(to.data, to.bytes(), from.data, from.bytes()) };
            }
            // SAFETY: see above.
            Step::Peer(part) => unsafe { write_peer(rules.fill, place(part)) },
        }
    }
    Ok(())
}

impl Buffer {
    /// Length in bytes.
    pub const fn bytes(&self) -> usize {
        self.numel * self.dtype.size()
    }
}

/// Writes what a peer holds.
///
/// # Safety
/// The buffer is valid for writes.
pub(super) unsafe fn write_peer(fill: Fill, buffer: Buffer) {
    let (pattern, bytes, data) = (fill.pattern(buffer.dtype), buffer.bytes(), buffer.data);
    if let &[byte] = pattern {
        if bytes > 0 {
            // SAFETY: promised by the caller.
            unsafe { ptr::write_bytes(data, byte, bytes) };
        }
        return;
    }
    for at in (0..bytes).step_by(pattern.len()) {
        // SAFETY: `at + pattern.len() <= bytes`, as the pattern's length divides an element's.
        unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), data.add(at), pattern.len()) };
    }
}

/// Fills `to` with `from`, repeated or cut; zeros if `from` is empty. Lengths in bytes.
///
/// # Safety
/// `from` is valid for reads, `to` for reads and writes.
unsafe fn repeat(to: *mut u8, to_len: usize, from: *const u8, from_len: usize) {
    if to_len == 0 {
        return;
    }
    if from_len == 0 {
        // SAFETY: promised by the caller.
        unsafe { ptr::write_bytes(to, 0, to_len) };
        return;
    }
    // If the source lies inside the destination but not in one of the places where its own copy goes, writing would
    // change it on the way.
    let offset = (from as usize).wrapping_sub(to as usize);
    let inside = offset < to_len || (to as usize).wrapping_sub(from as usize) < from_len;
    let kept = inside && !(offset < to_len && offset.is_multiple_of(from_len));
    // SAFETY: promised by the caller.
    let copy = kept.then(|| unsafe { std::slice::from_raw_parts(from, from_len.min(to_len)) }.to_vec());
    let from = copy.as_ref().map_or(from, |c| c.as_ptr());
    let mut at = 0;
    while at < to_len {
        let len = from_len.min(to_len - at);
        // SAFETY: `at + len <= to_len` and `len <= from_len`. Equal places are allowed: `copy` moves as if through a
        // temporary.
        unsafe { ptr::copy(from, to.add(at), len) };
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(from: &[u8], len: usize) -> Vec<u8> {
        let mut to = vec![9; len];
        // SAFETY: both slices are as long as said.
        unsafe { repeat(to.as_mut_ptr(), len, from.as_ptr(), from.len()) };
        to
    }

    #[test]
    fn repeats_cuts_and_zeroes() {
        assert_eq!(repeated(&[1, 2], 5), [1, 2, 1, 2, 1]);
        assert_eq!(repeated(&[1, 2, 3], 2), [1, 2]);
        assert_eq!(repeated(&[], 2), [0, 0]);
        assert_eq!(repeated(&[1], 0), []);
    }

    #[test]
    fn a_source_inside_the_destination_survives() {
        let mut memory = [0, 0, 7, 8, 0, 0];
        // SAFETY: inside the array.
        unsafe { repeat(memory.as_mut_ptr(), 6, memory.as_ptr().add(2), 2) };
        assert_eq!(memory, [7, 8, 7, 8, 7, 8]);
        let mut memory = [0, 7, 8, 0];
        // SAFETY: inside the array.
        unsafe { repeat(memory.as_mut_ptr(), 4, memory.as_ptr().add(1), 2) };
        assert_eq!(memory, [7, 8, 7, 8]);
    }
}
