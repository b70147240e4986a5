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
