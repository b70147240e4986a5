//! What was found: reported, held back, added to.

use std::collections::BTreeSet;

use allranks_check::{crossed_sites, failures};
use allranks_core::{Event, Finding, FindingId, GlobalRank, Location, Severity};

use super::World;
use super::suspects::Suspicion;

impl World {
    /// Keeps a finding in case `rank` dies of the exception that it is about to get: it then takes the place of
    /// `rank-failed`. `text` is part of the exception's, if others do not count. A later suspicion replaces an earlier
    /// one.
    pub fn suspect(&self, rank: GlobalRank, finding: Finding, text: Option<&str>) {
        let suspicion = Suspicion { findings: [finding].into(), text: text.map(Into::into) };
        self.lock().suspects.by_rank.insert(rank, suspicion);
    }

    /// Reports a finding; errors do not abort the run by themselves.
    pub fn find(&self, finding: Finding) {
        self.sink.emit(Event::Found(Box::new(finding.clone())));
        let mut inner = self.lock();
        if let Some(same) = inner.findings.iter_mut().find(|f| same_but_for_ranks(f, &finding)) {
            merge(same, finding);
        } else {
            inner.findings.push(finding);
        }
    }

    /// Adds places and a hint to the findings of an id: what somebody else knows about their cause.
    pub fn amend(&self, id: FindingId, locations: &[Location], hint: &str) {
        for finding in self.lock().findings.iter_mut().filter(|f| f.id == id) {
            finding
                .locations
                .extend(locations.iter().filter(|l| !finding.locations.contains(l)).cloned().collect::<Vec<_>>());
            finding.hints.push(hint.to_owned());
        }
    }

    /// All findings so far, failed ranks and what can be said only at the end included; errors first come first.
    pub fn findings(&self) -> Vec<Finding> {
        let inner = self.lock();
        let (known, plain) = inner.suspects.split(&inner.failures);
        let mut all = failures(&plain);
        for finding in known {
            match all.iter_mut().find(|f| same_but_for_ranks(f, &finding)) {
                Some(same) => merge(same, finding),
                None => all.push(finding),
            }
        }
        all.extend(inner.findings.iter().cloned());
        if !inner.aborted {
            for group in &inner.groups {
                if let Some(histories) = group.whole_histories() {
                    all.extend(crossed_sites(&group.name, &histories));
                }
            }
        }
        all
    }

    /// Whether any finding but failed ranks is an error.
    pub fn has_error(&self) -> bool {
        self.findings().iter().any(|f| f.severity == Severity::Error && f.id != FindingId::RankFailed)
    }
}

fn merge(into: &mut Finding, from: Finding) {
    into.ranks.extend(from.ranks.iter());
    for location in from.locations {
        if !into.locations.contains(&location) {
            into.locations.push(location);
        }
    }
}

fn same_but_for_ranks(a: &Finding, b: &Finding) -> bool {
    a.id == b.id && a.group == b.group && a.op == b.op && a.seq == b.seq && a.rule == b.rule && {
        let lines = |f: &Finding| f.locations.iter().map(|l| l.site.clone()).collect::<BTreeSet<_>>();
        lines(a) == lines(b)
    }
}
