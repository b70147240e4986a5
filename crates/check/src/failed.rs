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

/// What is the same for ranks that fail alike: without numbers and addresses (`0x7f72e0625db0`).
fn without_digits(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut parts = text.split("0x");
    kept.push_str(parts.next().unwrap_or_default());
    for part in parts {
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    kept.retain(|c| !c.is_ascii_digit());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(rank: u32, message: &str) -> Failure {
        Failure { rank: GlobalRank(rank), site: None, message: message.to_owned() }
    }

    #[test]
    fn equal_but_for_numbers_is_one() {
        let all = [
            failure(2, "rank 2: no <Group at 0x7fa0>"),
            failure(3, "rank 3: no <Group at 0x7fbcde>"),
            failure(0, "no"),
        ];
        let found = failures(&all);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].ranks.to_string(), "2,3");
        assert!(found[0].headline.starts_with("ranks 2,3 failed first"), "{}", found[0].headline);
    }
}
