//! All ranks with real data: the engine's world as Python sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use allranks_check::Failure;
use allranks_core::{
    CallSite, Finding, FindingId, GlobalRank, GroupRank, Location, NullSink, OpRecord, Profile, Severity,
};
use allranks_engine::{StoreWait, World};
use allranks_sched::TaskId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::baton::{Baton, Shared};
use crate::member::Member;
use crate::site;

/// File, line and function.
type Site = (String, u32, String);

pub(crate) fn parse<T: std::str::FromStr>(text: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e: T::Err| PyValueError::new_err(e.to_string()))
}

fn call_site(file: &str, line: u32, function: &str) -> CallSite {
    CallSite { file: file.into(), line, function: function.into() }
}

/// What all ranks of a run share.
#[pyclass(frozen, module = "allranks._allranks", name = "World")]
pub(crate) struct PyWorld {
    shared: Arc<Shared>,
    pub engine: Arc<World>,
}

#[pymethods]
impl PyWorld {
    #[new]
    fn new(baton: &Baton) -> Self {
        let engine = World::new(baton.shared.scheduler.clone(), Arc::new(NullSink));
        Self { shared: baton.shared.clone(), engine: Arc::new(engine) }
    }

    /// `rank`'s end of a group. Members are global ranks in the order of group ranks; `profile` is "gloo" or "nccl".
    fn join(&self, key: &str, name: &str, members: Vec<u32>, profile: &str, rank: u32) -> PyResult<Member> {
        let members: Vec<GlobalRank> = members.into_iter().map(GlobalRank).collect();
        let me = members
            .iter()
            .position(|m| m.0 == rank)
            .ok_or_else(|| PyValueError::new_err(format!("rank {rank} is not a member of group {name}")))?;
        let group = self.engine.join_group(key, name, &members, parse::<Profile>(profile)?, GlobalRank(rank));
        Ok(Member::new(self.engine.clone(), group, GroupRank(me as u32), GlobalRank(rank)))
    }

    /// A rank raised or exited with a status other than 0: where (if known) and what.
    #[pyo3(signature = (rank, file, line, function, message))]
    fn rank_failed(&self, rank: u32, file: Option<&str>, line: u32, function: &str, message: String) {
        let site = file.map(|file| call_site(file, line, function));
        self.engine.rank_failed(Failure { rank: GlobalRank(rank), site, message });
    }

    /// A rank ended. Messages that it left without a receiver and never waited for become a warning.
    fn rank_ended(&self, rank: u32, ok: bool) {
        for op in self.engine.rank_ended(GlobalRank(rank), ok) {
            self.engine.find(unwaited(&op));
        }
    }

    /// Reports something that Python noticed. `locations` are (rank, file, line, function, what).
    #[pyo3(signature = (id, severity, headline, locations, *, ranks, hints = vec![], rule = "definite", group = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn find(
        &self,
        id: &str,
        severity: &str,
        headline: String,
        locations: Vec<(u32, String, u32, String, String)>,
        ranks: Vec<u32>,
        hints: Vec<String>,
        rule: &str,
        group: Option<&str>,
    ) -> PyResult<()> {
        let finding = finding(id, severity, headline, locations, ranks, hints, rule, group)?;
        self.engine.find(finding);
        Ok(())
    }

    /// The same, held back until `rank` dies of the exception that it is about to get (`text` is part of that one's).
    #[pyo3(signature = (rank, id, severity, headline, locations, *, ranks, hints = vec![], rule = "definite", group = None,
                        text = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn suspect(
        &self,
        rank: u32,
        id: &str,
        severity: &str,
        headline: String,
        locations: Vec<(u32, String, u32, String, String)>,
        ranks: Vec<u32>,
        hints: Vec<String>,
        rule: &str,
        group: Option<&str>,
        text: Option<&str>,
    ) -> PyResult<()> {
        let finding = finding(id, severity, headline, locations, ranks, hints, rule, group)?;
        self.engine.suspect(GlobalRank(rank), finding, text);
        Ok(())
    }

    /// Adds places and a hint to the findings of an id.
    fn amend(&self, id: &str, places: Vec<(u32, String, u32, String, String)>, hint: &str) -> PyResult<()> {
        self.engine.amend(finding_id(id)?, &locations(places), hint);
        Ok(())
    }

    /// Nobody can go on: finds out why and ends the run. `stores` are (task, keys) of tasks that wait for a store.
    #[pyo3(signature = (stores = vec![]))]
    fn stall(&self, py: Python<'_>, stores: Vec<(u32, Vec<String>)>) -> PyResult<()> {
        let sites = self.sites(py)?;
        self.engine.stalled(&sites, &store_waits(stores));
        Ok(())
    }

    /// A wait of `rank` is about to time out: finds out what a stall would be told, in case it dies of that.
    #[pyo3(signature = (rank, stores = vec![]))]
    fn expiring(&self, py: Python<'_>, rank: u32, stores: Vec<(u32, Vec<String>)>) -> PyResult<()> {
        if !self.engine.knows_why(GlobalRank(rank)) {
            self.engine.expiring(GlobalRank(rank), &self.sites(py)?, &store_waits(stores));
        }
        Ok(())
    }

    /// What `expiring` found is reported if `rank` dies of an exception whose text has this in it.
    fn suspect_stall(&self, rank: u32, text: &str) {
        self.engine.suspect_stall(GlobalRank(rank), text);
    }

    /// `rank` dies of an exception; `texts` are its text and those of the exceptions that it came from.
    fn dies_of(&self, rank: u32, texts: Vec<String>) {
        self.engine.dies_of(GlobalRank(rank), &texts);
    }

    /// Where each blocked task stands: (rank, (file, line, function) or None, what it does).
    #[pyo3(signature = (stores = vec![]))]
    fn standing(&self, py: Python<'_>, stores: Vec<(u32, Vec<String>)>) -> PyResult<Vec<(u32, Option<Site>, String)>> {
        let sites = self.sites(py)?;
        let plain = |s: CallSite| (s.file.to_string(), s.line, s.function.to_string());
        let all = self.engine.standing(&sites, &store_waits(stores));
        Ok(all.into_iter().map(|(rank, site, what)| (rank.0, site.map(plain), what)).collect())
    }

    /// Whether a finding other than failed ranks is an error.
    #[getter]
    fn has_error(&self) -> bool {
        self.engine.has_error()
    }
}

impl PyWorld {
    /// Where every task stands, by a look at all Python stacks.
    fn sites(&self, py: Python<'_>) -> PyResult<BTreeMap<TaskId, CallSite>> {
        let frames = py.import("sys")?.call_method0("_current_frames")?.cast_into::<PyDict>()?;
        let mut sites = BTreeMap::new();
        for (task, ident) in self.shared.threads() {
            let Some(frame) = frames.get_item(ident)? else { continue };
            if let Some(site) = site::site_of(py, frame)? {
                sites.insert(task, site);
            }
        }
        Ok(sites)
    }
}

fn finding_id(name: &str) -> PyResult<FindingId> {
    let id = FindingId::ALL.iter().copied().find(|i| i.name() == name);
    id.ok_or_else(|| PyValueError::new_err(format!("unknown finding id {name:?}")))
}

fn locations(places: Vec<(u32, String, u32, String, String)>) -> Vec<Location> {
    let one = |(rank, file, line, function, what): (u32, String, u32, String, String)| Location {
        rank: GlobalRank(rank),
        site: call_site(&file, line, &function),
        what,
    };
    places.into_iter().map(one).collect()
}

fn store_waits(stores: Vec<(u32, Vec<String>)>) -> Vec<StoreWait> {
    stores.into_iter().map(|(task, keys)| StoreWait { task: TaskId(task), keys }).collect()
}

#[expect(clippy::too_many_arguments, reason = "one for each field")]
fn finding(
    id: &str,
    severity: &str,
    headline: String,
    locations: Vec<(u32, String, u32, String, String)>,
    ranks: Vec<u32>,
    hints: Vec<String>,
    rule: &str,
    group: Option<&str>,
) -> PyResult<Finding> {
    let severity = match severity {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        other => return Err(PyValueError::new_err(format!("unknown severity {other:?}"))),
    };
    Ok(Finding {
        id: finding_id(id)?,
        severity,
        headline,
        ranks: ranks.into_iter().map(GlobalRank).collect(),
        group: group.map(Into::into),
        op: None,
        seq: None,
        locations: self::locations(locations),
        hints,
        rule: rule.to_owned(),
    })
}

fn unwaited(op: &Arc<OpRecord>) -> Finding {
    let what = allranks_check::describe(op);
    Finding {
        id: FindingId::UnwaitedWork,
        severity: Severity::Warning,
        headline: format!("rank {} ended without waiting for its {what}", op.rank),
        ranks: [op.rank].into_iter().collect(),
        group: None,
        op: Some(op.kind),
        seq: None,
        locations: op.site.clone().map(|site| Location { rank: op.rank, site, what }).into_iter().collect(),
        hints: vec!["keep the Work that isend or irecv returns and call wait() on it".to_owned()],
        rule: "gloo, nccl: before wait() a message need not have left, nor have arrived".to_owned(),
    }
}
