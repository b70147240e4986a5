//! The reduction of `N` equal inputs, when one rank stands for all of them.

use std::marker::PhantomData;

use allranks_core::ReduceOp;

use crate::elem::Elem;
use crate::kernel::Kernel;
use crate::order::Place;
use crate::reduce::{Reduction, Unsupported, all_reduce, reduce_into};

/// Up to this many ranks the fold itself is run, step by step, so that the bits are those of `N` real ranks.
pub const UNIFORM_EXACT: usize = 64;

/// Replaces `buf` by the reduction of `ranks` inputs equal to it.
///
/// Up to [`UNIFORM_EXACT`] ranks the bits are those that [`all_reduce`] would leave (the order does not matter between
/// equal inputs, the rounding after each step does). Above, the work must not grow with the ranks: SUM is one
/// multiplication by their number, PRODUCT a power by squaring, each rounded to the dtype; AVG is the value itself.
/// MIN, MAX, BAND and BOR are the value itself, BXOR the value or 0, for any number of ranks. Integers wrap around, so
/// they are exact anywhere. With 0 or 1 ranks, one input is reduced.
///
/// # Errors
/// [`Unsupported`], before anything is written.
///
/// # Safety
/// `buf` is valid for reads and writes of `numel` elements, all initialised, which nobody else reads or writes
/// meanwhile. Alignment is not needed.
pub unsafe fn uniform(how: Reduction, ranks: usize, buf: *mut u8, numel: usize) -> Result<(), Unsupported> {
    let place = Place::whole(numel);
    let repeat = |times: usize| vec![buf.cast_const(); times];
    match how.op {
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::PremulSum | ReduceOp::Avg if ranks > UNIFORM_EXACT => {
            crate::reduce::supported(how)?;
            if how.op == ReduceOp::Avg {
                return Ok(());
            }
            // SAFETY: passed on from the caller.
            unsafe { crate::reduce::many(how, place, buf, numel, ranks) }
        }
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::PremulSum | ReduceOp::Avg => {
            // SAFETY: passed on from the caller; all inputs are the output.
            unsafe { reduce_into(how, place, &repeat(ranks.max(1)), buf, numel) }
        }
        // Two inputs say all there is to say; BXOR of an odd number leaves one over.
        ReduceOp::Bxor if ranks.max(1).is_multiple_of(2) => {
            // SAFETY: as above.
            unsafe { reduce_into(how, place, &repeat(2), buf, numel) }
        }
        ReduceOp::Min | ReduceOp::Max | ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
            // SAFETY: as above.
            unsafe { all_reduce(how, place, &[buf], numel) }
        }
    }
}

/// What [`Many`] does.
#[derive(Clone, Copy)]
pub(crate) enum ManyOp<W> {
    /// Times the number of ranks.
    Sum,
    /// To the power of the number of ranks.
    Product,
    /// Times the factor, then times the number of ranks.
    PremulSum(W),
}

/// One input that stands for `ranks` of them.
#[derive(Clone, Copy)]
pub(crate) struct Many<E: Elem> {
    pub(crate) op: ManyOp<E::Wide>,
    pub(crate) ranks: usize,
    pub(crate) elem: PhantomData<E>,
}

impl<E: Elem> Kernel for Many<E> {
    type Stored = E;
    type Acc = E::Wide;

    #[inline(always)]
    fn load(&self, x: E) -> E::Wide {
        x.widen()
    }
    /// There is one input, so no step.
    #[inline(always)]
    fn step(&self, _own: E, acc: E::Wide) -> E::Wide {
        acc
    }
    #[inline(always)]
    fn store(&self, acc: E::Wide) -> E {
        let count = E::from_count(self.ranks);
        let times = |w| E::round(E::mul(w, count));
        E::narrow(match self.op {
            ManyOp::Sum => times(acc),
            ManyOp::PremulSum(factor) => times(E::round(E::mul(acc, factor))),
            ManyOp::Product => power::<E>(acc, self.ranks),
        })
    }
}

/// `base` to the power of `exponent` (at least 1), by squaring.
#[inline(always)]
fn power<E: Elem>(base: E::Wide, exponent: usize) -> E::Wide {
    let mut result = base;
    let mut square = base;
    let mut rest = exponent - 1;
    while rest > 0 {
        if rest & 1 == 1 {
            result = E::round(E::mul(result, square));
        }
        square = E::round(E::mul(square, square));
        rest >>= 1;
    }
    result
}
