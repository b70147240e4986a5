//! Sets of ranks, printed as ranges.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::GlobalRank;

/// An ordered set of world ranks; prints as `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RankSet(BTreeSet<GlobalRank>);

impl RankSet {
    /// The empty set; prints as `none`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rank; true if it was not in yet.
    pub fn insert(&mut self, rank: GlobalRank) -> bool {
        self.0.insert(rank)
    }

    /// Whether the rank is in.
    pub fn contains(&self, rank: GlobalRank) -> bool {
        self.0.contains(&rank)
    }

    /// How many ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No rank at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest rank.
    pub fn first(&self) -> Option<GlobalRank> {
        self.0.first().copied()
    }

    /// The ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = GlobalRank> + '_ {
        self.0.iter().copied()
    }

    /// `rank 3` or `ranks 0-3,7`.
    pub fn noun(&self) -> String {
        if self.len() == 1 { format!("rank {self}") } else { format!("ranks {self}") }
    }
}

impl FromIterator<GlobalRank> for RankSet {
    fn from_iter<I: IntoIterator<Item = GlobalRank>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl Extend<GlobalRank> for RankSet {
    fn extend<I: IntoIterator<Item = GlobalRank>>(&mut self, ranks: I) {
        self.0.extend(ranks);
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in &self.0 {
            match runs.last_mut() {
                Some((_, end)) if *end + 1 == rank.0 => *end = rank.0,
                _ => runs.push((rank.0, rank.0)),
            }
        }
        for (i, (start, end)) in runs.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match end - start {
                0 => write!(f, "{comma}{start}")?,
                1 => write!(f, "{comma}{start},{end}")?,
                _ => write!(f, "{comma}{start}-{end}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranks: &[u32]) -> RankSet {
        ranks.iter().map(|&r| GlobalRank(r)).collect()
    }

    #[test]
    fn prints_ranges() {
        assert_eq!(set(&[]).to_string(), "none");
        assert_eq!(set(&[7]).noun(), "rank 7");
        assert_eq!(set(&[3, 1, 0, 2, 7]).noun(), "ranks 0-3,7");
        assert_eq!(set(&[1, 2, 9, 10, 11]).to_string(), "1,2,9-11");
    }
}
