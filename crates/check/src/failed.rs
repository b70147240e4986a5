//! Ranks that failed.

use allranks_core::{CallSite, Finding, FindingId, GlobalRank, Location, RankSet, Severity};

use crate::DEFINITE;

/// How one rank failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who.
    pub rank: GlobalRank,
    /// The innermost line of the user's program.
    pub site: Option<CallSite>,
    /// `ValueError: no such root`, or `exited with status 3`.
    pub message: String,
}

/// One finding for each set of ranks that failed alike (same line, same message but for numbers), in the order in
/// which the first of each failed.
pub fn failures(failed: &[Failure]) -> Vec<Finding> {
    let mut sets: Vec<Vec<&Failure>> = Vec::new();
    for failure in failed {
        let alike = |set: &&mut Vec<&Failure>| {
            let of = set[0];
            of.site == failure.site && without_digits(&of.message) == without_digits(&failure.message)
        };
        match sets.iter_mut().find(alike) {
            Some(set) => set.push(failure),
            None => sets.push(vec![failure]),
        }
    }
    let later = sets.len() > 1;
    sets.iter()
        .enumerate()
        .map(|(i, set)| {
            let ranks: RankSet = set.iter().map(|f| f.rank).collect();
            let first = if i == 0 && later { " first" } else { "" };
            Finding {
                id: FindingId::RankFailed,
                severity: Severity::Error,
                headline: format!("{} failed{first}: {}", ranks.noun(), first_line(&set[0].message)),
                ranks,
                group: None,
                op: None,
                seq: None,
                locations: set
                    .iter()
                    .filter_map(|f| {
                        let what = first_line(&f.message).to_owned();
                        Some(Location { rank: f.rank, site: f.site.clone()?, what })
                    })
                    .collect(),
                hints: Vec::new(),
                rule: DEFINITE.to_owned(),
            }
        })
        .collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}
