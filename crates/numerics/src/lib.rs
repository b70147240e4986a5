//! Reductions over typed buffers in a named [`Order`], to the bit.
//!
//! The buffers of all ranks are in one process, so a reduction is a fold over the ranks at each element. What makes it
//! equal to the real thing is the order of the fold, which operand is on which side, and where a value is rounded:
//! [`Order`] says it, and golden files made by real gloo hold us to it.
//!
//! [`all_reduce`] and [`reduce_into`] reduce; [`uniform`] answers for `N` ranks that hold the same; [`rules`] says
//! what a backend refuses, and how.

#![deny(unsafe_op_in_unsafe_fn)]

mod elem;
mod fold;
mod fp8;
mod half16;
mod kernel;
mod order;
mod reduce;
pub mod rules;
mod uniform;

pub use order::{Order, Place};
pub use reduce::{Reduction, Unsupported, all_reduce, reduce_into, supported};
pub use uniform::{UNIFORM_EXACT, uniform};
