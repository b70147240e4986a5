//! Reductions over typed buffers in a named [`Order`], to the bit.
//!
//! The buffers of all ranks are in one process, so a reduction is a fold over the ranks at each element. What makes it
//! equal to the real thing is the order of the fold, which operand is on which side, and where a value is rounded.
//! [`all_reduce`] and [`reduce_into`] reduce; [`uniform`] answers for `N` ranks that hold the same; [`rules`] says
//! what a backend refuses, and how.
//!
//! # What gloo computes
//! Read in gloo's and torch's source, then held against what real gloo leaves: `data/golden.tsv` has hashes for 1, 2,
//! 3, 4, 5, 8, 13 and 16 ranks, all operations, ops and dtypes, sizes from 0 to several megabytes, with arbitrary bit
//! patterns among the data. torch 2.14 and 2.15 give the same file. On x86-64:
//!
//! * **Order**: a descending ring per chunk, see [`Order`]. all_reduce_coalesced is one ring over the concatenation.
//!   reduce_scatter_tensor is an all_reduce of the whole input, reduce_scatter an all_reduce of each tensor of the
//!   list, so the two differ in their last bits; see [`Place`].
//! * **Rounding**: float16 and bfloat16 are added in f32 and rounded to nearest even after every step. AVG is the sum,
//!   rounded, then one true division. Integers wrap around. Complex numbers are twice as many real ones, also for the
//!   borders of chunks.
//! * **NaN**: of two NaNs a sum or product keeps the left one, made quiet; a float16 NaN becomes `sign | 0x7e00`, a
//!   bfloat16 NaN `0x7fc0`, and in the whole blocks of 32 elements that an AVG divides, `0xffff`. MIN and MAX keep the
//!   left operand if either is NaN or the two are equal (zeros of different sign), so they do not propagate NaN.
//! * **bool** is added as bytes: see [`Reduction::copied`].
//! * **One rank**: nothing is computed; AVG makes a NaN quiet.
//!
//! # What is not to the bit
//! * AVG of complex numbers in reduce and reduce_scatter: torch divides there complex by complex, and the last bits
//!   depend on its vector code. Take SUM and let torch divide. all_reduce divides real numbers, as we do.
//! * The sparse all_reduce: torch adds sparse tensors in rank order; let torch do it.
//! * What a reduce leaves on ranks other than the root: partial sums in gloo, nothing here.
//! * NCCL's sums: their order depends on the machine. [`Order::RankOrder`] is ours.

mod elem;
mod fold;
mod fp8;
mod half16;
mod kernel;
mod order;
mod reduce;
pub mod rules;
pub mod threads;
mod uniform;

pub use order::{Order, Place};
pub use reduce::{Reduction, Unsupported, all_reduce, reduce_into, supported};
pub use uniform::{UNIFORM_EXACT, uniform};
