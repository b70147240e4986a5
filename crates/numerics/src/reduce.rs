//! The public reductions: dispatch on dtype and op once, then [`crate::fold`].

use std::marker::PhantomData;

use allranks_core::{Dtype, OpKind, ReduceOp};

use crate::elem::Elem;
use crate::fold::{Buffers, fold};
use crate::fp8::{F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0FNU};
use crate::half16::{BF16, F16};
use crate::kernel::{Add, Arith, Average, Band, Bor, Bxor, Kernel, Mul, Pick, Premul};
use crate::order::{Order, Place};
use crate::uniform::{Many, ManyOp};

/// How to reduce: in which order, with which op, on which elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// The order of combination.
    pub order: Order,
    /// The reduce op.
    pub op: ReduceOp,
    /// The element type.
    pub dtype: Dtype,
    /// The factor of [`ReduceOp::PremulSum`]; no other op looks at it.
    pub factor: f64,
    /// The result reaches the user through a copy by torch, which makes 1 of a bool that is not 0. gloo adds bools as
    /// bytes, so a SUM of two is a 2 unless it is copied: by [`Reduction::copied`] for the operations that do.
    pub copied: bool,
}

impl Reduction {
    /// A reduction whose factor is 1.
    pub const fn new(order: Order, op: ReduceOp, dtype: Dtype) -> Self {
        Reduction { order, op, dtype, factor: 1.0, copied: false }
    }

    /// The same with a factor for [`ReduceOp::PremulSum`].
    pub const fn with_factor(self, factor: f64) -> Self {
        Reduction { factor, ..self }
    }

    /// The same through torch's copy if `kind` on `tensors` tensors makes one: reduce_scatter_tensor, and
    /// all_reduce_coalesced of several tensors.
    pub const fn copied(self, kind: OpKind, tensors: usize) -> Self {
        let copied = match kind {
            OpKind::AllReduceCoalesced => tensors > 1,
            OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => true,
            _ => false,
        };
        Reduction { copied, ..self }
    }
}

/// There is no such reduction: the op has no meaning for the dtype, or the backend whose order was asked for has none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("no {} of {} in {:?}", .0.op, .0.dtype, .0.order)]
pub struct Unsupported(pub Reduction);

/// Reduces all `bufs`, one per rank in ascending order, and leaves the result in each of them.
///
/// Complex numbers are reduced as twice as many real ones, as torch does; `numel` and `place` count what the dtype
/// says. Nothing happens if `numel` or `bufs` is empty. Two ranks may pass the same buffer, and buffers may overlap:
/// the outcome then depends on the order of blocks, but nothing outside the buffers is touched.
///
/// # Errors
/// [`Unsupported`], before anything is written.
///
/// # Safety
/// Each pointer is valid for reads and writes of `numel` elements, all initialised, which nobody else reads or writes
/// meanwhile. Alignment is not needed.
pub unsafe fn all_reduce(how: Reduction, place: Place, bufs: &[*mut u8], numel: usize) -> Result<(), Unsupported> {
    // A `*mut u8` is readable too.
    let inputs: Vec<*const u8> = bufs.iter().map(|p| p.cast_const()).collect();
    // SAFETY: passed on from the caller.
    unsafe { dispatch(how, place, Buffers { inputs: &inputs, outputs: bufs }, numel) }
}

/// Reduces all `inputs`, one per rank in ascending order, into `out`, which may be one of them.
///
/// The pointers are those of the first of the `numel` elements, which lie at `place` of the flat buffer that the order
/// speaks of. For reduce it is [`Place::whole`]; for rank `i` of a reduce_scatter, [`Place::part`]`(world * numel,
/// i * numel)`, with pointers to the `i`-th part.
///
/// # Errors
/// [`Unsupported`], before anything is written.
///
/// # Safety
/// Each input is valid for reads of `numel` elements, all initialised, `out` for writes; nobody else writes to them
/// meanwhile. Alignment is not needed.
pub unsafe fn reduce_into(
    how: Reduction,
    place: Place,
    inputs: &[*const u8],
    out: *mut u8,
    numel: usize,
) -> Result<(), Unsupported> {
    // SAFETY: passed on from the caller.
    unsafe { dispatch(how, place, Buffers { inputs, outputs: &[out] }, numel) }
}

/// `Ok` if there is such a reduction.
///
/// # Errors
/// [`Unsupported`], as the reductions themselves would return.
pub fn supported(how: Reduction) -> Result<(), Unsupported> {
    // SAFETY: no element is touched.
    unsafe { dispatch(how, Place::whole(0), Buffers { inputs: &[], outputs: &[] }, 0) }
}

/// Reduces `ranks` inputs equal to `buf` into it, by [`Many`]: SUM, PRODUCT and PREMUL_SUM only.
///
/// # Safety
/// As for [`crate::uniform`].
pub(crate) unsafe fn many(
    how: Reduction,
    place: Place,
    buf: *mut u8,
    numel: usize,
    ranks: usize,
) -> Result<(), Unsupported> {
    let buffers = Buffers { inputs: &[buf.cast_const()], outputs: &[buf] };
    // SAFETY: passed on from the caller.
    unsafe { dispatch_call(Call { how, place, buffers, numel, many: Some(ranks) }) }
}

/// What the kernels need to know besides the types.
#[derive(Clone, Copy)]
struct Call<'a> {
    how: Reduction,
    place: Place,
    buffers: Buffers<'a>,
    numel: usize,
    /// The one input stands for so many.
    many: Option<usize>,
}

impl Call<'_> {
    /// # Safety
    /// As for [`all_reduce`]; `K::Stored` is the dtype's representation.
    unsafe fn run<K: Kernel>(self, kernel: K) -> Result<(), Unsupported> {
        if self.numel > 0 && !self.buffers.inputs.is_empty() {
            // SAFETY: passed on from the caller; every `Stored` is a plain number.
            unsafe { fold(kernel, self.how.order, self.place, self.buffers, self.numel) };
        }
        Ok(())
    }

    fn gloo(&self) -> bool {
        self.how.order != Order::RankOrder
    }

    /// SUM, PRODUCT, MIN, MAX, AVG and PREMUL_SUM.
    ///
    /// # Safety
    /// As for [`Call::run`].
    unsafe fn arith<E: Elem>(self) -> Result<(), Unsupported> {
        if let Some(ranks) = self.many {
            let op = match self.how.op {
                ReduceOp::Sum => ManyOp::Sum,
                ReduceOp::Product => ManyOp::Product,
                ReduceOp::PremulSum => ManyOp::PremulSum(E::from_f64(self.how.factor)),
                _ => return Err(Unsupported(self.how)),
            };
            // SAFETY: passed on from the caller.
            return unsafe { self.run(Many::<E> { op, ranks, elem: PhantomData }) };
        }
        // SAFETY: passed on from the caller.
        unsafe {
            match self.how.op {
                ReduceOp::Sum => self.run(Arith::<E, Add>(PhantomData)),
                ReduceOp::Product => self.run(Arith::<E, Mul>(PhantomData)),
                ReduceOp::Min if self.gloo() => self.run(Pick::<E, false, false>(PhantomData)),
                ReduceOp::Max if self.gloo() => self.run(Pick::<E, true, false>(PhantomData)),
                ReduceOp::Min => self.run(Pick::<E, false, true>(PhantomData)),
                ReduceOp::Max => self.run(Pick::<E, true, true>(PhantomData)),
                ReduceOp::Avg => {
                    let ranks = self.buffers.inputs.len();
                    self.run(Average::<E> { ranks, torch: self.gloo(), elem: PhantomData })
                }
                ReduceOp::PremulSum if !self.gloo() => self.run(Premul::<E> { factor: E::from_f64(self.how.factor) }),
                _ => Err(Unsupported(self.how)),
            }
        }
    }

    /// Integers: [`Call::arith`] and the bitwise ops. gloo has no AVG of them.
    ///
    /// # Safety
    /// As for [`Call::run`].
    unsafe fn int<E>(self) -> Result<(), Unsupported>
    where
        E: Elem + std::ops::BitAnd<Output = E> + std::ops::BitOr<Output = E> + std::ops::BitXor<Output = E>,
    {
        // SAFETY: passed on from the caller.
        unsafe {
            match self.how.op {
                ReduceOp::Band => self.run(Band::<E>(PhantomData)),
                ReduceOp::Bor => self.run(Bor::<E>(PhantomData)),
                ReduceOp::Bxor => self.run(Bxor::<E>(PhantomData)),
                ReduceOp::Avg if self.gloo() => Err(Unsupported(self.how)),
                _ => self.arith::<E>(),
            }
        }
    }

    /// A complex number as two real ones. Only sums have a meaning that way.
    ///
    /// # Safety
    /// As for [`Call::run`].
    unsafe fn complex<E: Elem>(self) -> Result<(), Unsupported> {
        if !matches!(self.how.op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum) {
            return Err(Unsupported(self.how));
        }
        let place = Place { total: 2 * self.place.total, start: 2 * self.place.start };
        // SAFETY: passed on from the caller; a complex number is two of `E`.
        unsafe { Call { place, numel: 2 * self.numel, ..self }.arith::<E>() }
    }

    /// Makes 1 of every byte of the outputs that is not 0, if the result is copied.
    ///
    /// # Safety
    /// As for [`all_reduce`].
    unsafe fn normalise_bools(&self) {
        if self.how.copied {
            for output in self.buffers.outputs {
                for i in 0..self.numel {
                    // SAFETY: each output is valid for reads and writes of `numel` bytes, by now initialised.
                    unsafe {
                        let byte = output.add(i);
                        *byte = u8::from(*byte != 0);
                    }
                }
            }
        }
    }

    /// Types that gloo does not know.
    fn beyond_gloo(self) -> Result<Self, Unsupported> {
        if self.gloo() { Err(Unsupported(self.how)) } else { Ok(self) }
    }
}

/// # Safety
/// As for [`all_reduce`].
unsafe fn dispatch(how: Reduction, place: Place, buffers: Buffers<'_>, numel: usize) -> Result<(), Unsupported> {
    // SAFETY: passed on from the caller.
    unsafe { dispatch_call(Call { how, place, buffers, numel, many: None }) }
}

/// # Safety
/// As for [`all_reduce`].
unsafe fn dispatch_call(call: Call<'_>) -> Result<(), Unsupported> {
    // SAFETY: passed on from the caller; each type is the representation of its dtype.
    unsafe {
        match call.how.dtype {
            Dtype::Float64 => call.arith::<f64>(),
            Dtype::Float32 => call.arith::<f32>(),
            Dtype::Float16 => call.arith::<F16>(),
            Dtype::Bfloat16 => call.arith::<BF16>(),
            Dtype::Complex128 => call.complex::<f64>(),
            Dtype::Complex64 => call.complex::<f32>(),
            Dtype::Complex32 => call.complex::<F16>(),
            Dtype::Int64 => call.int::<i64>(),
            Dtype::Int32 => call.int::<i32>(),
            Dtype::Int8 => call.int::<i8>(),
            Dtype::Uint8 => call.int::<u8>(),
            // NCCL's SUM of bools is their MAX, so that nothing wraps around; it has no AVG of them.
            Dtype::Bool if !call.gloo() && call.how.op == ReduceOp::Avg => Err(Unsupported(call.how)),
            Dtype::Bool if !call.gloo() && call.how.op == ReduceOp::Sum => {
                call.run(Pick::<u8, true, false>(PhantomData))
            }
            Dtype::Bool => call.int::<u8>().inspect(|()| call.normalise_bools()),
            Dtype::Int16 => call.beyond_gloo()?.int::<i16>(),
            Dtype::Uint64 => call.beyond_gloo()?.int::<u64>(),
            Dtype::Uint32 => call.beyond_gloo()?.int::<u32>(),
            Dtype::Uint16 => call.beyond_gloo()?.int::<u16>(),
            Dtype::Float8E4m3fn => call.beyond_gloo()?.arith::<F8E4M3FN>(),
            Dtype::Float8E4m3fnuz => call.beyond_gloo()?.arith::<F8E4M3FNUZ>(),
            Dtype::Float8E5m2 => call.beyond_gloo()?.arith::<F8E5M2>(),
            Dtype::Float8E5m2fnuz => call.beyond_gloo()?.arith::<F8E5M2FNUZ>(),
            Dtype::Float8E8m0fnu => call.beyond_gloo()?.arith::<F8E8M0FNU>(),
        }
    }
}
