//! From words to a plan.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Command};
use crate::{RunPlan, UsageError, clap_error, guard};

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    /// A run.
    Run(Box<RunPlan>),
    /// `--help` or `--version`: this text, to stdout, and exit status 0.
    Text {
        /// Without escapes.
        plain: String,
        /// With terminal escapes.
        styled: String,
    },
}

/// Reads a command line; `argv[0]` is the program's name and is ignored. Asks `env` only for what the guard needs.
///
/// # Errors
/// [`UsageError`], with exit status 2.
pub fn parse(
    argv: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Parsed, UsageError> {
    let program = std::iter::once(OsString::from("allranks"));
    let words = program.chain(argv.into_iter().skip(1));
    let cli = Cli::command().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    let Command::Run(args) = match cli {
        Ok(cli) => cli.command,
        Err(error) => {
            let rendered = error.render();
            return match clap_error::convert(&error) {
                Some(usage) => Err(usage),
                None => Ok(Parsed::Text { plain: rendered.to_string(), styled: rendered.ansi().to_string() }),
            };
        }
    };
    let plan = RunPlan::check(*args)?;
    if !plan.allow_launcher
        && let Some(refusal) = guard(env)
    {
        return Err(refusal.into());
    }
    Ok(Parsed::Run(Box::new(plan)))
}
