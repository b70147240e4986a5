//! Random correct c10d programs, run on all ranks in one process and on real gloo, and compared byte by byte.
//!
//! A tool for developers (`make soak`); no part of what users get. Real gloo is right by definition.
//!
//! [`generate`] makes a [`Program`] from a seed, [`check`] says whether a program is correct, [`body`] and [`script`] write
//! it as Python, [`Side`] runs that text through `tests/soak/execute.py` on either side, [`compare`] finds what differs,
//! [`shrink`] looks for the smallest program that still does, and [`Table`] counts.
//!
//! # What is in a program
//!
//! Up to six ranks; the world and up to three groups of some ranks, in any order of group ranks, made in each way that
//! gloo has; every operation of [`Class`], with every dtype that gloo takes and a few that it refuses; waits in an order of
//! its own on each rank, several operations in flight, on one group and on several; results that later steps read or
//! overwrite; memory with gaps, offsets, other orders of dimensions and shared rows wherever gloo takes it; empty and
//! scalar tensors and some of a few MiB; infinities, NaNs, denormals and overflow.
//!
//! # What is left out
//!
//! Because gloo itself fails or hangs, seen on torch 2.15:
//! - A group that only its members make (`use_local_synchronization=True`) is counted by them alone, and later groups are named
//!   after that count: a later group with members that counted differently hangs. [`check`] refuses it.
//! - A receive of an empty tensor from any source fails in gloo, and with it the connection.
//! - `all_reduce_coalesced` fails for some strides of dimensions of one.
//! - A sparse sum is refused in its middle: some ranks get the refusal, others a closed connection.
//! - `all_gather_into_tensor` of a scalar, or into an output with one dimension more; `all_to_all` of tensors of different
//!   shapes; `reduce_scatter` of scalars: refused or undefined.
//! - A barrier after an operation that gloo refused: it waits for what is under way on the group, and raises what that raised
//!   if it comes soon enough.
//! - Gaps where gloo takes memory for dense: it overwrites what lies between.
//!
//! Because we are known to differ:
//! - `reduce_scatter_tensor` of an input with its dimensions in reverse order: gloo adds in the order in which the elements
//!   lie, which decides the rounding; we add in the order of the dimensions.
//! - AVG in `reduce_scatter_tensor` of complex NaNs: the sign of a NaN depends on where torch's vector division ends.
//! - After a refusal only the exception's type is compared, since gloo's `reduce_scatter` leaves the input in the output.

mod check;
mod class;
mod compare;
mod deck;
mod draw;
mod generate;
mod order;
mod program;
mod python;
mod shape;
mod shrink;
mod side;
mod table;

pub use check::{Wrong, check};
pub use class::Class;
pub use compare::{Difference, Verdict, compare};
pub use generate::generate;
pub use program::{Action, Group, How, Layout, Message, Program, Source, Step};
pub use python::{body, script};
pub use shrink::shrink;
pub use side::{Lost, RankReply, Reply, Schedule, Side, Which};
pub use table::Table;
