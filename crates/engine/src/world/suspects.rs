//! Findings that are held back: they count only if the rank dies of the exception that comes with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use allranks_check::Failure;
use allranks_core::{Finding, GlobalRank};

/// Why a rank may be about to die.
#[derive(Clone, Debug)]
pub(super) struct Suspicion {
    /// What it would be told from then on: nothing new if another rank that failed is the cause.
    pub findings: Arc<[Finding]>,
    /// Part of the exception's text; `None` if any exception will do.
    pub text: Option<Arc<str>>,
}

/// What was found when a deadline passed, for everybody who waited then.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// In virtual time.
    pub at: Duration,
    /// Who waited and has not used it yet.
    pub ranks: BTreeSet<GlobalRank>,
    pub findings: Arc<[Finding]>,
}

#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub by_rank: BTreeMap<GlobalRank, Suspicion>,
    pub snapshot: Snapshot,
}

impl Suspects {
    /// The exception that `rank` dies of, and those that it came from, have these texts.
    pub fn dies_of(&mut self, rank: GlobalRank, texts: &[String]) {
        let Some(Suspicion { text: Some(text), .. }) = self.by_rank.get(&rank) else { return };
        if !texts.iter().any(|t| t.contains(&**text)) {
            self.by_rank.remove(&rank);
        }
    }

    /// Sorts failures into those that a suspicion explains, with their findings, and the others. One that only follows
    /// from an earlier failure needs no words of its own.
    pub fn split(&self, failures: &[Failure]) -> (Vec<Finding>, Vec<Failure>) {
        let (mut findings, mut plain) = (Vec::new(), Vec::new());
        for (i, failure) in failures.iter().enumerate() {
            match self.by_rank.get(&failure.rank) {
                Some(known) if i > 0 || !known.findings.is_empty() => findings.extend_from_slice(&known.findings),
                _ => plain.push(failure.clone()),
            }
        }
        (findings, plain)
    }
}
