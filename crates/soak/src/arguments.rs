//! The words of the command line.

use std::ops::Range;
use std::path::PathBuf;

use allranks_soak::Class;

pub(crate) const USAGE: &str =
    "usage: soak run [--count N] [--seed S] [--programs FILE] [--python PYTHON] [--spoil CLASS] \
[--shrink K] [--logs FOLDER]
       soak show [--seed S]                  the program of a seed, as a script for torchrun or allranks
       soak generate [--count N] [--seed S]  programs as JSON lines, which --programs reads
run compares N programs, of the seeds S, S+1, ..., or those in FILE, and shrinks the first K that differ.
--spoil flips a bit of our results of a class (`all_reduce`), to see that it is found.";

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run,
    Show,
    Generate,
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) command: Command,
    pub(crate) seed: u64,
    pub(crate) count: u64,
    pub(crate) programs: Option<PathBuf>,
    pub(crate) python: PathBuf,
    /// Where the sides' own output goes.
    pub(crate) logs: PathBuf,
    pub(crate) spoil: Option<Class>,
    /// How many differing programs are shrunk.
    pub(crate) shrink: usize,
}

impl Arguments {
    /// The error says what is wrong with which word.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let command = match words.next().as_deref() {
            Some("run") => Command::Run,
            Some("show") => Command::Show,
            Some("generate") => Command::Generate,
            other => return Err(format!("{} is not a command", other.unwrap_or("nothing"))),
        };
        let mut all = Self {
            command,
            seed: 1,
            count: 2000,
            programs: None,
            python: "python3".into(),
            logs: "target/soak".into(),
            spoil: None,
            shrink: 3,
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{option} takes a number, not {value}"));
            match option.as_str() {
                "--seed" => all.seed = number()?,
                "--count" => all.count = number()?,
                "--shrink" => all.shrink = usize::try_from(number()?).unwrap_or(usize::MAX),
                "--programs" => all.programs = Some(value.into()),
                "--logs" => all.logs = value.into(),
                "--python" => all.python = value.into(),
                "--spoil" => {
                    let class = Class::ALL.iter().find(|class| class.name() == value);
                    all.spoil = Some(*class.ok_or_else(|| format!("{value} is not a class of operations"))?);
                }
                _ => return Err(format!("{option} is not an option")),
            }
        }
        Ok(all)
    }

    /// The seeds that were asked for.
    pub(crate) fn seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.count)
    }
}
