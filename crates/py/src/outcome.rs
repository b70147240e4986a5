//! The end of a run of all ranks: findings, the closing line, the exit status.

use std::time::Duration;

use allranks_check::{Failure, failures};
use allranks_cli::{ExitStatus, Printer};
use allranks_core::{CallSite, FindingId, Severity, WorldSize};
use allranks_report::{
    Color, DiskSources, GroupTraffic, Scope, Summary, render_findings, to_json_line, write_findings_file,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::cli::PyRunPlan;
use crate::world::PyWorld;

/// Prints what was found and the closing line to stderr, writes the findings file, and returns the exit status.
#[pyfunction]
#[pyo3(signature = (world, plan, seconds, *, rank_failed))]
pub(crate) fn conclude(world: &PyWorld, plan: &PyRunPlan, seconds: f64, rank_failed: bool) -> PyResult<u8> {
    let plan = &plan.0;
    let findings = world.engine.findings();
    let printer = Printer::for_process(plan.quiet);
    for finding in &findings {
        printer.finding(finding, &DiskSources);
    }
    if let Some(path) = &plan.findings
        && let Err(e) = write_findings_file(path, &findings)
    {
        printer.error(&e.to_string(), None);
        return Ok(ExitStatus::Usage.code());
    }
    if !findings.is_empty() {
        printer.line(&plan.reproduce());
    }
    let counts = world.engine.summary();
    printer.summary(&Summary {
        scope: Scope::AllRanks,
        world: WorldSize(plan.world.0),
        elapsed: Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?,
        operations: counts
            .operations
            .into_iter()
            .filter(|(kind, _)| *kind != allranks_core::OpKind::NewGroup)
            .collect(),
        groups: counts
            .groups
            .into_iter()
            .map(|(name, size, bytes)| GroupTraffic { name: name.to_string(), size, bytes })
            .collect(),
        seed: plan.seed,
        schedule: (plan.schedule.name() != "round-robin").then(|| plan.schedule.name()),
        errors: findings.iter().filter(|f| f.severity == Severity::Error && f.id != FindingId::RankFailed).count(),
        warnings: findings.iter().filter(|f| f.severity == Severity::Warning).count(),
    });
    Ok(ExitStatus::of_run(rank_failed, &findings, plan.strict).code())
}

/// All findings so far, each as one line of JSON.
#[pyfunction]
pub(crate) fn findings_json(world: &PyWorld) -> Vec<String> {
    world.engine.findings().iter().map(to_json_line).collect()
}

/// All findings so far, as a person reads them; empty if there are none.
#[pyfunction]
pub(crate) fn findings_text(world: &PyWorld) -> String {
    render_findings(&world.engine.findings(), &DiskSources, Color::Never)
}

/// The end of a run of one rank: the closing line, the findings file (a failed rank is one), the exit status.
/// `operations` are (name, number), `groups` (name, size, bytes that this rank would send), `failure` is (file or None,
/// line, function, message) of a rank that raised or exited with a status other than 0.
#[pyfunction]
pub(crate) fn conclude_one_rank(
    plan: &PyRunPlan,
    seconds: f64,
    operations: Vec<(String, u64)>,
    groups: Vec<(String, u32, u64)>,
    failure: Option<(Option<String>, u32, String, String)>,
) -> PyResult<u8> {
    let plan = &plan.0;
    let rank = plan.rank.ok_or_else(|| PyValueError::new_err("the plan names no rank"))?;
    let failed = failure.is_some();
    let failure = failure.map(|(file, line, function, message)| Failure {
        rank,
        site: file.map(|file| CallSite { file: file.into(), line, function: function.into() }),
        message,
    });
    let findings = failures(failure.as_slice());
    let printer = Printer::for_process(plan.quiet);
    if let Some(path) = &plan.findings
        && let Err(e) = write_findings_file(path, &findings)
    {
        printer.error(&e.to_string(), None);
        return Ok(ExitStatus::Usage.code());
    }
    let known = |(name, n): (String, u64)| name.parse().map(|kind| (kind, n));
    printer.summary(&Summary {
        scope: Scope::OneRank { rank, fill: plan.fill },
        world: WorldSize(plan.world.0),
        elapsed: Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?,
        operations: operations
            .into_iter()
            .map(known)
            .collect::<Result<_, _>>()
            .map_err(|e: allranks_core::UnknownName| PyValueError::new_err(e.to_string()))?,
        groups: groups
            .into_iter()
            .map(|(name, size, bytes)| GroupTraffic { name, size, bytes: allranks_core::Bytes(bytes) })
            .collect(),
        seed: plan.seed,
        schedule: None,
        errors: 0,
        warnings: 0,
    });
    Ok(ExitStatus::of_run(failed, &findings, plan.strict).code())
}
