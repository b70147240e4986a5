//! A world that cannot fit into memory is refused before it takes the machine down.

use allranks_core::WorldSize;

use crate::{RunPlan, UsageError};

/// What a rank needs at least: its thread, its share of the interpreter's state and of torch's. Its tensors come on top.
pub const PER_RANK: u64 = 4 << 20;

/// Refuses a run of all ranks that needs more than the `available` bytes; `None` is unknown and refuses nothing.
///
/// # Errors
/// [`UsageError::WorldTooLarge`].
pub fn check(plan: &RunPlan, available: Option<u64>) -> Result<(), UsageError> {
    let all_here = plan.rank.is_none() && plan.on.is_none();
    let WorldSize(world) = plan.world;
    match available {
        Some(available) if all_here && u64::from(world) * PER_RANK > available => {
            Err(UsageError::WorldTooLarge { world, available, fits: available / PER_RANK })
        }
        _ => Ok(()),
    }
}

/// Bytes that this process may still take, if the system says so. The one place that asks: Linux's `/proc/meminfo`, and
/// the limit of the control group where there is one. Elsewhere these files do not exist and the answer is `None`.
pub fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let system = read("/proc/meminfo").and_then(|text| meminfo(&text));
    let group = read("/sys/fs/cgroup/memory.max").and_then(|limit| {
        let used = read("/sys/fs/cgroup/memory.current")?.trim().parse::<u64>().ok()?;
        Some(limit.trim().parse::<u64>().ok()?.saturating_sub(used))
    });
    [system, group].into_iter().flatten().min()
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_answer_is_read() {
        let text = "MemTotal:       24682524 kB\nMemFree:         100 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(meminfo(text), Some(2 << 20));
        assert_eq!(meminfo("MemTotal: 3 kB\n"), None);
        assert_eq!(meminfo(""), None);
    }
}
