//! What can be wrong with a command line: the message says what, the hint says what to do.

use std::path::PathBuf;

use crate::guard::Refusal;
use crate::memory::PER_RANK;

/// A command line that cannot be run. Exit status 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// No such option.
    #[error("unknown option {option}")]
    UnknownOption {
        /// As written.
        option: String,
        /// The nearest one that exists.
        suggestion: Option<String>,
    },
    /// No such command.
    #[error("unknown command {name:?}")]
    UnknownCommand {
        /// As written.
        name: String,
        /// The nearest one that exists.
        suggestion: Option<String>,
    },
    /// A value that the option does not take.
    #[error("{option} cannot be {value:?}{}", why(.reason))]
    InvalidValue {
        /// The option.
        option: String,
        /// As written.
        value: String,
        /// What is wrong with it, where that is known.
        reason: Option<String>,
        /// Every value it takes, if they can be listed.
        allowed: Vec<String>,
    },
    /// An option at the end, without its value.
    #[error("{option} needs a value")]
    MissingValue {
        /// The option.
        option: String,
        /// Every value it takes, if they can be listed.
        allowed: Vec<String>,
    },
    /// An option given twice, or a value to an option that has none.
    #[error("{0}")]
    Malformed(String),
    /// Neither a script nor a module.
    #[error("nothing to run: no script and no -m MODULE")]
    NoTarget,
    /// `-n 0`.
    #[error("a world of 0 ranks cannot run")]
    EmptyWorld,
    /// `--rank R` with R at or beyond N.
    #[error("rank {rank} is outside the world of {world} ranks")]
    RankOutside {
        /// The rank.
        rank: u32,
        /// How many there are.
        world: u32,
    },
    /// `--rank R` without `-n N`.
    #[error("--rank {rank} needs the size of the world")]
    RankWithoutWorld {
        /// The rank.
        rank: u32,
    },
    /// An option that has no meaning in the mode that was asked for.
    #[error("{option} has no effect {mode}")]
    NoEffect {
        /// The option.
        option: &'static str,
        /// `with --rank`.
        mode: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// No such script.
    #[error("no such script: {}", .path.display())]
    ScriptMissing {
        /// As written.
        path: PathBuf,
        /// A module name that the path could stand for.
        module: Option<String>,
    },
    /// A folder that Python cannot run.
    #[error("{} is a folder without a __main__.py", .path.display())]
    FolderWithoutMain {
        /// As written.
        path: PathBuf,
    },
    /// A name that no module can have.
    #[error("{name:?} is not the name of a module")]
    NotAModuleName {
        /// As written.
        name: String,
    },
    /// A file that cannot be made, because its folder is not there or it is a folder itself.
    #[error("cannot write findings to {}: {reason}", .path.display())]
    FindingsPath {
        /// As written.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// All ranks of such a world do not fit here.
    #[error("a world of {world} ranks needs {} GiB at least, {} GiB are free", gib(u64::from(*world) * PER_RANK), gib(*available))]
    WorldTooLarge {
        /// How many ranks.
        world: u32,
        /// Bytes that are free.
        available: u64,
        /// How many ranks would fit.
        fits: u64,
    },
    /// A launcher started this process as one of several.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
}

fn why(reason: &Option<String>) -> String {
    reason.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}

impl UsageError {
    /// What to do about it, in one line.
    pub fn hint(&self) -> String {
        match self {
            UsageError::UnknownOption { suggestion: Some(near), .. } => format!("did you mean {near}?"),
            UsageError::UnknownOption { suggestion: None, .. } => {
                "see allranks run --help; options of the script go after the script".to_owned()
            }
            UsageError::UnknownCommand { suggestion: Some(near), .. } => format!("did you mean: allranks {near}"),
            UsageError::UnknownCommand { suggestion: None, .. } => "the command is: allranks run".to_owned(),
            UsageError::InvalidValue { allowed, .. } | UsageError::MissingValue { allowed, .. }
                if !allowed.is_empty() =>
            {
                format!("one of: {}", allowed.join(", "))
            }
            UsageError::InvalidValue { .. } | UsageError::MissingValue { .. } | UsageError::Malformed(_) => {
                "see allranks run --help".to_owned()
            }
            UsageError::NoTarget => "allranks run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]".to_owned(),
            UsageError::EmptyWorld => "-n takes the number of ranks, 1 or more".to_owned(),
            UsageError::RankOutside { world, .. } => format!("ranks are 0 to {}", world - 1),
            UsageError::RankWithoutWorld { rank } => format!("for example: -n {} --rank {rank}", example_world(*rank)),
            UsageError::NoEffect { hint, .. } => (*hint).to_owned(),
            UsageError::ScriptMissing { module: Some(name), .. } => format!("to run a module: -m {name}"),
            UsageError::ScriptMissing { module: None, .. } => {
                "check the path; it is taken from the current folder".to_owned()
            }
            UsageError::FolderWithoutMain { .. } => "name the script inside it, or use -m PACKAGE".to_owned(),
            UsageError::NotAModuleName { .. } => "a module is named like package.module, without .py".to_owned(),
            UsageError::FindingsPath { .. } => "--findings takes the path of a file in a folder that exists".to_owned(),
            UsageError::WorldTooLarge { fits, .. } => {
                format!("at most -n {fits} here; with --rank R one rank runs alone, in a world of any size")
            }
            UsageError::Refused(_) => Refusal::HINT.to_owned(),
        }
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

/// A world that holds the rank: the next power of two.
fn example_world(rank: u32) -> u64 {
    (u64::from(rank) + 1).next_power_of_two().max(2)
}
