//! The command line: from words to a checked [`RunPlan`], from an ended run to an exit status.
//!
//! ```text
//! argv -> args (clap) -> plan (checked) -> guard -> RunPlan        the run itself belongs to others
//!            \______________\______________\-> UsageError -> Printer, exit status 2
//! ```
//! [`parse`] is pure but for questions to the file system (is there such a script?) and never prints; [`Printer`] does
//! all the talking: stdout is the program's, our words go to stderr, and only `--help` and `--version`, which were
//! asked for, go to stdout.

mod args;
mod clap_error;
mod error;
pub mod exit;
pub mod guard;
pub mod memory;
mod parse;
mod plan;
mod printer;

pub use args::{SchedulePolicy, command};
pub use error::UsageError;
pub use exit::ExitStatus;
pub use guard::{Launcher, Refusal, guard};
pub use parse::{Parsed, parse};
pub use plan::{DEFAULT_WATCHDOG, DEFAULT_WORLD, RunPlan, Target};
pub use printer::{Printer, color_choice};
