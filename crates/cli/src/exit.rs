//! Exit statuses of `allranks`.
//!
//! | status | meaning |
//! |---|---|
//! | [`CLEAN`] | the program ended well and nothing was found |
//! | [`PROGRAM_FAILED`] | a rank raised, or exited with a status other than 0 |
//! | [`USAGE`] | the command line is wrong, or taking over was refused; nothing ran |
//! | [`ERROR_FOUND`] | a finding of severity error, or any finding with `--strict` |
//! | [`INTERRUPTED`] | Ctrl-C |

use allranks_core::{Finding, FindingId, Severity};

/// The program ended well and nothing was found.
pub const CLEAN: u8 = 0;
/// A rank raised, or exited with a status other than 0.
pub const PROGRAM_FAILED: u8 = 1;
/// The command line is wrong, or taking over was refused; nothing ran.
pub const USAGE: u8 = 2;
/// A finding of severity error; with `--strict`, any finding.
pub const ERROR_FOUND: u8 = 3;
/// Ctrl-C: 128 + SIGINT, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// See [`CLEAN`].
    Clean,
    /// See [`PROGRAM_FAILED`].
    ProgramFailed,
    /// See [`USAGE`].
    Usage,
    /// See [`ERROR_FOUND`].
    ErrorFound,
    /// See [`INTERRUPTED`].
    Interrupted,
}

impl ExitStatus {
    /// The number for the operating system.
    pub const fn code(self) -> u8 {
        match self {
            ExitStatus::Clean => CLEAN,
            ExitStatus::ProgramFailed => PROGRAM_FAILED,
            ExitStatus::Usage => USAGE,
            ExitStatus::ErrorFound => ERROR_FOUND,
            ExitStatus::Interrupted => INTERRUPTED,
        }
    }

    /// The status of a run that ended by itself.
    ///
    /// An error that we found goes before a failure of the program, because ranks raise *when* something is found;
    /// `rank-failed` alone is a failure of the program and no more. Warnings count with `strict` only.
    pub fn of_run(rank_failed: bool, findings: &[Finding], strict: bool) -> Self {
        let counts = |finding: &&Finding| finding.id != FindingId::RankFailed;
        let found = |severity| findings.iter().filter(counts).any(|finding| finding.severity == severity);
        let failed = rank_failed || findings.iter().any(|finding| finding.id == FindingId::RankFailed);
        match (found(Severity::Error), failed, strict && found(Severity::Warning)) {
            (true, _, _) => ExitStatus::ErrorFound,
            (false, true, _) => ExitStatus::ProgramFailed,
            (false, false, true) => ExitStatus::ErrorFound,
            (false, false, false) => ExitStatus::Clean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: FindingId, severity: Severity) -> Finding {
        Finding {
            id,
            severity,
            headline: String::new(),
            ranks: [].into_iter().collect(),
            group: None,
            op: None,
            seq: None,
            locations: vec![],
            hints: vec![],
            rule: String::new(),
        }
    }

    #[test]
    fn what_was_found_goes_before_what_failed() {
        let error = finding(FindingId::ShapeMismatch, Severity::Error);
        let failed = finding(FindingId::RankFailed, Severity::Error);
        let warning = finding(FindingId::UnwaitedWork, Severity::Warning);
        let of = |rank_failed, findings: &[&Finding], strict| {
            let owned: Vec<Finding> = findings.iter().map(|&f| f.clone()).collect();
            ExitStatus::of_run(rank_failed, &owned, strict).code()
        };
        assert_eq!(of(false, &[], true), CLEAN);
        assert_eq!(of(true, &[], false), PROGRAM_FAILED);
        assert_eq!(of(true, &[&failed, &warning], true), PROGRAM_FAILED);
        assert_eq!(of(true, &[&failed, &error], false), ERROR_FOUND);
        assert_eq!(of(false, &[&warning], false), CLEAN);
        assert_eq!(of(false, &[&warning], true), ERROR_FOUND);
    }
}
