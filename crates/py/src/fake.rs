//! One rank of a world without peers, as Python sees it: `FakeWorld` makes `FakeGroup`s, whose `FakeMethod`s are the
//! methods of a `c10d.Backend`, called by torch's C++ code without a Python frame in between.

mod arguments;
mod dlpack;

use std::sync::Arc;

use allranks_core::{Event, GlobalRank, GroupRank, OpKind, OpRecord, Profile, ReduceOp, TensorMeta, WorldSize};
use allranks_engine::fake::{self, Buffer, Group, OneRank, Op, Part, Ring, Side, Step, run};
#[cfg(feature = "mutants")]
use allranks_engine::mutants;
use allranks_numerics::rules::{Refusal, refusal};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use crate::site;
use arguments::{METHODS, Method, Request};
use dlpack::Tensor;

struct World {
    engine: OneRank,
    /// `work(tensors)` makes a finished `Work`.
    work: Py<PyAny>,
    /// `slow(steps, outs, ins, op, factor)` carries steps out by torch operations.
    slow: Py<PyAny>,
}

/// One rank of a world whose other ranks do not exist.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct FakeWorld {
    world: Arc<World>,
    ring: std::sync::Mutex<Option<Arc<Ring>>>,
}

/// A process group of that rank.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct FakeGroup {
    world: Arc<World>,
    group: Arc<Group>,
    profile: Option<Profile>,
}

/// One method of that group's backend.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct FakeMethod {
    world: Arc<World>,
    group: Arc<Group>,
    profile: Option<Profile>,
    method: Method,
    kind: OpKind,
}

fn refused(refusal: Refusal) -> PyErr {
    let message = refusal.message.into_owned();
    match refusal.exception.name() {
        "ValueError" => PyValueError::new_err(message),
        "TypeError" => PyTypeError::new_err(message),
        "NotImplementedError" => PyNotImplementedError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|e: T::Err| PyValueError::new_err(e.to_string()))
}

/// Operations by kind; (group, size, bytes).
type Summary = (Vec<(&'static str, u64)>, Vec<(String, u32, u64)>);

#[pymethods]
impl FakeWorld {
    /// `fill` is "uniform", "zeros" or "nan".
    #[new]
    #[pyo3(signature = (rank, size, *, fill, work, slow))]
    fn new(rank: u32, size: u32, fill: &str, work: Py<PyAny>, slow: Py<PyAny>) -> PyResult<Self> {
        if rank >= size {
            return Err(PyValueError::new_err(format!("rank {rank} is not in a world of {size}")));
        }
        let engine = OneRank::new(GlobalRank(rank), WorldSize(size), parse(fill)?);
        Ok(Self { world: Arc::new(World { engine, work, slow }), ring: std::sync::Mutex::default() })
    }

    /// A group with this rank at `group_rank` of `members` (global ranks). `profile`: whose refusals hold, if any's;
    /// `counting`: whose way of counting the sequence number follows.
    #[pyo3(signature = (name, group_rank, members, *, profile = None, counting = "nccl"))]
    fn join(
        &self,
        name: &str,
        group_rank: u32,
        members: Vec<u32>,
        profile: Option<&str>,
        counting: &str,
    ) -> PyResult<FakeGroup> {
        if group_rank as usize >= members.len() {
            return Err(PyValueError::new_err(format!(
                "group rank {group_rank} is not in a group of {}",
                members.len()
            )));
        }
        let members: Vec<GlobalRank> = members.into_iter().map(GlobalRank).collect();
        let group = self.world.engine.group(name, GroupRank(group_rank), &members, parse(counting)?);
        Ok(FakeGroup { world: self.world.clone(), group, profile: profile.map(parse).transpose()? })
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.world.engine.rank().0
    }

    #[getter]
    fn size(&self) -> u32 {
        self.world.engine.size().0
    }

    #[getter]
    fn fill(&self) -> &'static str {
        self.world.engine.fill().name()
    }

    /// Keeps the last `capacity` operations in memory from now on; 0 stops that.
    fn record(&self, capacity: usize) {
        let ring = (capacity > 0).then(|| Arc::new(Ring::new(capacity)));
        self.world.engine.set_sink(ring.clone().map(|r| r as Arc<dyn allranks_core::EventSink>));
        *self.ring.lock().expect("nothing here panics") = ring;
    }

    /// The operations kept, oldest first, each as a dict.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let ring = self.ring.lock().expect("nothing here panics").clone();
        ring.map_or_else(Vec::new, |r| r.records()).iter().map(|record| as_dict(py, record)).collect()
    }

    /// Operations by kind, in a fixed order, and (group, size, bytes that this rank would send) by order of creation.
    fn summary(&self) -> Summary {
        let totals = self.world.engine.totals();
        let operations = totals.operations.into_iter().map(|(kind, n)| (kind.name(), n)).collect();
        (operations, totals.groups.into_iter().map(|(name, size, b)| (name.to_string(), size, b.0)).collect())
    }
}

fn as_dict<'py>(py: Python<'py>, record: &OpRecord) -> PyResult<Bound<'py, PyDict>> {
    let metas = |list: &[TensorMeta]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let dict = PyDict::new(py);
    dict.set_item("kind", record.kind.name())?;
    dict.set_item("group", record.group.0)?;
    dict.set_item("seq", record.seq.0)?;
    dict.set_item("reduce_op", record.reduce_op.map(ReduceOp::name))?;
    dict.set_item("root", record.root.map(|r| r.0))?;
    dict.set_item("tag", record.tag.map(|t| t.0))?;
    dict.set_item("inputs", metas(&record.inputs))?;
    dict.set_item("outputs", metas(&record.outputs))?;
    dict.set_item("is_async", record.is_async)?;
    let site = record.site.as_ref().map(|s| (s.file.to_string(), s.line, s.function.to_string()));
    dict.set_item("site", site)?;
    Ok(dict)
}

#[pymethods]
impl FakeGroup {
    /// A method by the name under which torch calls it.
    fn method(&self, name: &str) -> PyResult<FakeMethod> {
        let found = METHODS.iter().find(|(n, ..)| *n == name);
        let &(_, method, kind) = found.ok_or_else(|| PyValueError::new_err(format!("unknown method {name:?}")))?;
        Ok(FakeMethod { world: self.world.clone(), group: self.group.clone(), profile: self.profile, method, kind })
    }

    /// The names that `method` knows.
    #[staticmethod]
    fn methods() -> Vec<&'static str> {
        METHODS.iter().map(|(name, ..)| *name).collect()
    }

    /// Counts (and records) an operation that Python carries out itself.
    #[pyo3(signature = (kind, *, op = None, dtype = None, numel = 0))]
    fn note(&self, py: Python<'_>, kind: &str, op: Option<&str>, dtype: Option<&str>, numel: u64) -> PyResult<()> {
        let (kind, op): (OpKind, Option<ReduceOp>) = (parse(kind)?, op.map(parse).transpose()?);
        let mut inputs = SmallVec::new();
        if let Some(dtype) = dtype {
            let dtype = parse(dtype)?;
            if let Some(refusal) = self.profile.and_then(|p| refusal(p, kind, op, dtype)) {
                return Err(refused(refusal));
            }
            inputs.push(TensorMeta { dtype, shape: (&[numel][..]).into() });
        }
        let bytes = inputs.iter().map(|t: &TensorMeta| t.bytes().0).sum();
        let seq = self.group.issue(kind, 1, bytes, None);
        if self.world.engine.wants_operations() {
            let record = OpRecord {
                rank: self.world.engine.rank(),
                group: self.group.id,
                seq,
                kind,
                reduce_op: op,
                root: None,
                tag: None,
                inputs,
                outputs: SmallVec::new(),
                input_splits: Vec::new(),
                output_splits: Vec::new(),
                members: Vec::new(),
                is_async: false,
                site: site::here(py)?,
            };
            self.world.engine.emit(Event::Issued(Arc::new(record)));
        }
        Ok(())
    }

    /// Operations until `end_coalescing` count as one.
    fn start_coalescing(&self) {
        self.group.start_coalescing();
    }

    fn end_coalescing(&self) {
        self.group.end_coalescing();
    }

    /// As the backend would count.
    #[getter]
    fn sequence_number(&self) -> u64 {
        self.group.sequence_number()
    }
}

#[pymethods]
impl FakeMethod {
    #[pyo3(signature = (*args))]
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut request = Request::new(self.method, args, &self.group.rules)?;
        let given = if request.ins.is_empty() { &request.outs } else { &request.ins };
        if let (Some(profile), Some(first)) = (self.profile, given.first())
            && let Some(refusal) = refusal(profile, self.kind, request.op.map(|o| o.op), first.dtype)
        {
            return Err(refused(refusal));
        }
        let bytes = if request.ins.is_empty() && !request.in_place { 0 } else { given.iter().map(bytes).sum() };
        let seq = self.group.issue(self.kind, request.outs.len() as u64, bytes, request.root);
        if self.world.engine.wants_operations() {
            let record = self.record(py, &mut request, seq)?;
            self.world.engine.emit(Event::Issued(Arc::new(record)));
        }
        self.carry_out(py, &request)?;
        if !request.is_async {
            return Ok(None);
        }
        let touched = if self.method == Method::Send { &request.ins } else { &request.outs };
        let results = PyList::new(py, touched.iter().map(|t| &t.object))?;
        self.world.work.bind(py).call1((results,)).map(Some)
    }
}

fn bytes(t: &Tensor<'_>) -> u64 {
    (t.numel * t.dtype.size()) as u64
}

impl FakeMethod {
    fn record(&self, py: Python<'_>, request: &mut Request<'_>, seq: allranks_core::Seq) -> PyResult<OpRecord> {
        let meta = |t: &Tensor<'_>| TensorMeta { dtype: t.dtype, shape: t.shape.clone() };
        let outputs: SmallVec<[TensorMeta; 1]> = request.outs.iter().map(meta).collect();
        let (input_splits, output_splits) = request.splits.take().unwrap_or_default();
        Ok(OpRecord {
            rank: self.world.engine.rank(),
            group: self.group.id,
            seq,
            kind: self.kind,
            reduce_op: request.op.map(|o| o.op),
            root: request.root,
            tag: request.tag,
            inputs: if request.in_place { outputs.clone() } else { request.ins.iter().map(meta).collect() },
            outputs,
            input_splits,
            output_splits,
            members: Vec::new(),
            is_async: request.is_async,
            site: site::here(py)?,
        })
    }

    fn carry_out(&self, py: Python<'_>, request: &Request<'_>) -> PyResult<()> {
        if request.steps.is_empty() {
            return Ok(());
        }
        let op = request.op.unwrap_or(Op::plain(ReduceOp::Sum));
        let plain = |list: &[Tensor<'_>]| -> Option<SmallVec<[Buffer; 2]>> {
            list.iter().map(|t| t.data.map(|data| Buffer { dtype: t.dtype, data, numel: t.numel })).collect()
        };
        let (Some(outs), Some(ins)) = (plain(&request.outs), plain(&request.ins)) else {
            return self.slowly(py, request, op);
        };
        if let Some((out, input)) = request.outs.iter().zip(&request.ins).find(|(o, i)| o.dtype != i.dtype) {
            let message = format!("the output is {}, the input is {}", out.dtype, input.dtype);
            return Err(PyTypeError::new_err(message));
        }
        #[cfg(feature = "mutants")]
        if mutants::change(mutants::Target::OneRank(self.kind)) == Some(mutants::Change::Nothing) {
            return Ok(());
        }
        // SAFETY: each buffer is the dense memory of a tensor that the caller's arguments keep alive. The interpreter
        // is held, so no Python code uses it meanwhile.
        unsafe { run(&request.steps, &self.group.rules, op, &outs, &ins) }
            .map_err(|e| PyRuntimeError::new_err(format!("{}: {e}", self.kind)))?;
        #[cfg(feature = "mutants")]
        // SAFETY: as above.
        unsafe {
            mutants::spoil_steps(self.kind, &request.steps, &outs);
        }
        Ok(())
    }

    /// Some tensor is no plain memory: torch operations do what the steps say.
    fn slowly(&self, py: Python<'_>, request: &Request<'_>, op: Op) -> PyResult<()> {
        let part = |p: Part| (p.side == Side::In, p.tensor, p.start, p.len);
        let step = |s: &Step| match *s {
            Step::Reduce(to) => ("reduce", part(to), None),
            Step::Copy { to, from } => ("copy", part(to), Some(part(from))),
            Step::Peer(to) => ("peer", part(to), None),
        };
        let steps: Vec<_> = request.steps.iter().map(step).collect();
        let outs = PyList::new(py, request.outs.iter().map(|t| &t.object))?;
        let ins = PyList::new(py, request.ins.iter().map(|t| &t.object))?;
        let how = (op.op.name(), op.factor, self.group.rules.size, self.group.rules.fill.name());
        self.world.slow.bind(py).call1((steps, outs, ins, how)).map(drop)
    }
}

/// Zeroes the memory of a tensor that nobody has written yet; false if it is no plain memory.
#[pyfunction]
pub(crate) fn clear_memory(tensor: Bound<'_, PyAny>) -> PyResult<bool> {
    let tensor = Tensor::new(tensor)?;
    let Some(data) = tensor.data else { return Ok(false) };
    if tensor.numel > 0 {
        // SAFETY: the dense memory of a tensor that the caller keeps alive.
        unsafe { std::ptr::write_bytes(data, 0, tensor.numel * tensor.dtype.size()) };
    }
    Ok(true)
}

/// The names of the fill rules.
#[pyfunction]
pub(crate) fn fill_rules() -> Vec<&'static str> {
    fake::Fill::ALL.iter().map(|f| f.name()).collect()
}
