//! From clap's errors to ours: the same facts, one line and a hint.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::UsageError;

/// Names under which users of other launchers know our options.
const FOREIGN: [(&str, &str); 9] = [
    ("--nproc-per-node", "-n"),
    ("--nproc_per_node", "-n"),
    ("--nprocs", "-n"),
    ("--num-processes", "-n"),
    ("--num_processes", "-n"),
    ("--world_size", "-n"),
    ("-np", "-n"),
    ("--module", "-m"),
    ("--backend", "--profile or --on"),
];

/// `None` for what is no error: `--help`, `--version`.
pub(crate) fn convert(error: &clap::Error) -> Option<UsageError> {
    let option = || bare(&text(error, ContextKind::InvalidArg));
    Some(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
        ErrorKind::UnknownArgument => {
            let option = text(error, ContextKind::InvalidArg);
            let option = option.split('=').next().unwrap_or_default().to_owned();
            let foreign = FOREIGN.iter().find(|(name, _)| *name == option).map(|(_, ours)| (*ours).to_owned());
            let near = maybe(error, ContextKind::SuggestedArg).filter(|near| is_near(&option, near));
            let suggestion = foreign.or(near);
            UsageError::UnknownOption { option, suggestion }
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(error, ContextKind::InvalidSubcommand);
            let script = name.ends_with(".py").then(|| format!("run {name}"));
            let suggestion = script.or_else(|| maybe(error, ContextKind::SuggestedSubcommand));
            UsageError::UnknownCommand { name, suggestion }
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let allowed = list(error, ContextKind::ValidValue);
            match text(error, ContextKind::InvalidValue) {
                value if value.is_empty() => UsageError::MissingValue { option: option(), allowed },
                value => {
                    let reason = std::error::Error::source(error).map(ToString::to_string);
                    UsageError::InvalidValue { option: option(), value, reason, allowed }
                }
            }
        }
        ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues | ErrorKind::NoEquals => {
            UsageError::MissingValue { option: option(), allowed: list(error, ContextKind::ValidValue) }
        }
        ErrorKind::ArgumentConflict => UsageError::Malformed(format!("{} is given more than once", option())),
        ErrorKind::TooManyValues => UsageError::Malformed(format!("{} takes no value", option())),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => UsageError::NoTarget,
        // Not reached with the arguments we declare; the first line of clap's own words is still right.
        _ => {
            let rendered = error.to_string();
            let first = rendered.lines().next().unwrap_or_default();
            UsageError::Malformed(first.trim_start_matches("error: ").to_owned())
        }
    })
}

/// A slip of the hand: at most one letter in three is wrong, missing, or out of place.
fn is_near(written: &str, meant: &str) -> bool {
    3 * strsim::damerau_levenshtein(written, meant) <= meant.len()
}

/// `--rank` from `--rank <R>`.
fn bare(option: &str) -> String {
    option.split_whitespace().next().unwrap_or_default().to_owned()
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    maybe(error, kind).unwrap_or_default()
}

fn maybe(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

fn list(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}
