//! A run with one rank and no peers.

use std::collections::BTreeSet;

use allranks_core::{GlobalRank, WorldSize};

/// What a store answers that only this rank uses, though the world has more.
///
/// Peers are taken to do what this rank does, when it does it:
///
/// - A key that this rank did not set has the value of a key that it did set, if the two differ only by a rank number:
///   the peer's where this rank's is (`k3` for `k17` on rank 17), or both swapped (`3->17` for `17->3`). Zeros in front
///   are allowed. The value is this rank's, byte for byte.
/// - `add(key, n)` counts `n` for every rank of the world, so who counts arrivals sees that all are there. The key by
///   which the last to arrive lets the others go (`:last_worker`, `/last_member`, `.last_member` behind the counter, as
///   torch writes them) is there once this rank has arrived, whatever the size of the group; so is `barrier` past.
/// - `compare_set`, `append` and queues are this rank's alone.
/// - Any other key is missing: `check` says no, and `get`, `wait` or a blocking `queue_pop` is an error at once, since
///   only a peer could set it, and there is none.
///
/// Nothing here grows with the size of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Which rank this process is.
    pub rank: GlobalRank,
    /// Of how many.
    pub world_size: WorldSize,
}

/// A run of digits in a key: `key[start..end]`.
#[derive(Clone, Copy)]
struct Run {
    start: usize,
    end: usize,
    number: u64,
}

impl Alone {
    /// What `add` counts when this rank adds `amount`.
    pub(crate) fn for_all(self, amount: i64) -> i64 {
        amount.wrapping_mul(i64::from(self.world_size.0))
    }

    /// Keys of this rank that a peer's key corresponds to, the likelier ones first.
    pub(crate) fn counterparts(self, key: &str) -> Vec<String> {
        let runs = runs(key);
        let mine = u64::from(self.rank.0);
        let peers: BTreeSet<u64> =
            runs.iter().map(|r| r.number).filter(|&n| n != mine && n < u64::from(self.world_size.0)).collect();
        let mut found = Vec::new();
        for peer in peers {
            for padded in [false, true] {
                let write = |n: u64, run: &Run| pad(n, run, key, padded);
                found.push(rewrite(key, &runs, |r| (r.number == peer).then(|| write(mine, r))));
                found.push(rewrite(key, &runs, |r| match r.number {
                    n if n == peer => Some(write(mine, r)),
                    n if n == mine => Some(write(peer, r)),
                    _ => None,
                }));
                for only in runs.iter().filter(|r| r.number == peer) {
                    found.push(rewrite(key, &runs, |r| (r.start == only.start).then(|| write(mine, r))));
                }
            }
        }
        found
    }

    /// The counter whose last arrival sets `key`.
    pub(crate) fn counter_of(key: &str) -> Option<String> {
        if let Some(counter) = key.strip_suffix(":last_worker") {
            return Some(counter.to_owned());
        }
        ["/", "."].iter().find_map(|dot| {
            let stem = key.strip_suffix("last_member")?.strip_suffix(dot)?;
            Some(format!("{stem}{dot}num_members"))
        })
    }
}

/// A number in place of a run; `padded` to the run's width.
fn pad(number: u64, run: &Run, key: &str, padded: bool) -> String {
    let width = run.end - run.start;
    if padded || (width > 1 && key[run.start..].starts_with('0')) {
        format!("{number:0width$}")
    } else {
        number.to_string()
    }
}

fn runs(key: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut start = None;
    for (at, byte) in key.bytes().chain([b' ']).enumerate() {
        match (byte.is_ascii_digit(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                if let Ok(number) = key[from..at].parse() {
                    runs.push(Run { start: from, end: at, number });
                }
                start = None;
            }
            _ => {}
        }
    }
    runs
}

fn rewrite(key: &str, runs: &[Run], new: impl Fn(&Run) -> Option<String>) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    let mut at = 0;
    for run in runs {
        if let Some(text) = new(run) {
            out.push_str(&key[at..run.start]);
            out.push_str(&text);
            at = run.end;
        }
    }
    out.push_str(&key[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK_17: Alone = Alone { rank: GlobalRank(17), world_size: WorldSize(131_072) };

    #[test]
    fn a_peers_key_and_mine() {
        for (peers, mine) in [
            ("k3", "k17"),
            ("3->17", "17->3"),
            ("rank00003.bin", "rank00017.bin"),
            ("r131071/of/131071", "r17/of/17"),
            ("step3/rank3", "step3/rank17"),
            ("é3", "é17"),
        ] {
            assert!(RANK_17.counterparts(peers).iter().any(|k| k == mine), "{peers} -> {mine}");
        }
        for key in ["ready", "k17", "k131072", "k99999999999999999999999"] {
            assert!(RANK_17.counterparts(key).is_empty(), "{key}");
        }
    }

    #[test]
    fn the_last_one_to_arrive() {
        let counter = |key| Alone::counter_of(key);
        assert_eq!(counter("store_based_barrier_key:0:last_worker").as_deref(), Some("store_based_barrier_key:0"));
        assert_eq!(counter("b/last_member").as_deref(), Some("b/num_members"));
        assert_eq!(counter("b.last_member").as_deref(), Some("b.num_members"));
        assert_eq!(counter("last_member"), None);
    }
}
