//! One rank's end of a group: operations go in, tickets come out.

use std::sync::Arc;

use allranks_core::{GlobalRank, GroupId, GroupRank, OpKind, OpRecord, ReduceOp, Seq, Tag};
use allranks_engine::{Call, Exception, Issued, Refused, Ticket, World};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::baton;
use crate::tensor::{meta_of, plain};
use crate::ticket::{PyTicket, finish};
use crate::world::parse;
use crate::{site, tensor};

pyo3::create_exception!(
    allranks._allranks,
    NeedsStaging,
    pyo3::exceptions::PyException,
    "A tensor is not dense CPU memory: hand in a dense copy instead."
);

/// One exhaustive place where a refusal becomes the exception that the backend raises. Its attribute `late` says that an
/// asynchronous operation raises it in `wait` only.
fn refused(py: Python<'_>, refused: &Refused) -> PyErr {
    let message = refused.message.clone();
    let error = match refused.exception {
        Exception::RuntimeError => PyRuntimeError::new_err(message),
        Exception::ValueError => PyValueError::new_err(message),
        Exception::TypeError => PyTypeError::new_err(message),
        Exception::NotImplementedError => PyNotImplementedError::new_err(message),
    };
    if refused.late
        && let Err(e) = error.value(py).setattr(intern!(py, "late"), true)
    {
        return e;
    }
    error
}

/// A rank of the group as Python has it: any integer.
fn group_rank(kind: &str, rank: i64) -> PyResult<GroupRank> {
    u32::try_from(rank)
        .map(GroupRank)
        .map_err(|_| PyRuntimeError::new_err(format!("{kind}: invalid root rank: {rank}")))
}

/// One rank's end of a group.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct Member {
    engine: Arc<World>,
    group: GroupId,
    me: GroupRank,
    rank: GlobalRank,
}

fn reduce_op(code: u8) -> PyResult<ReduceOp> {
    // The values of torch's ReduceOp.RedOpType.
    Ok(match code {
        0 => ReduceOp::Sum,
        1 => ReduceOp::Avg,
        2 => ReduceOp::Product,
        3 => ReduceOp::Min,
        4 => ReduceOp::Max,
        5 => ReduceOp::Band,
        6 => ReduceOp::Bor,
        7 => ReduceOp::Bxor,
        8 => ReduceOp::PremulSum,
        other => {
            return Err(PyNotImplementedError::new_err(format!("allranks does not know reduce op number {other}")));
        }
    })
}

/// What a list of tensors turns into: their memory, and what is known of them without it.
type Lists = (SmallVec<[allranks_engine::Buf; 1]>, SmallVec<[allranks_core::TensorMeta; 1]>);

fn buffers(tensors: &Bound<'_, PyList>) -> PyResult<Lists> {
    let mut lists = Lists::default();
    for tensor in tensors.iter() {
        let Some((buf, meta)) = plain(&tensor)? else { return Err(NeedsStaging::new_err(())) };
        lists.0.push(buf);
        lists.1.push(meta);
    }
    Ok(lists)
}

impl Member {
    /// The end of `rank`, which is `me` in the group.
    pub fn new(engine: Arc<World>, group: GroupId, me: GroupRank, rank: GlobalRank) -> Self {
        Self { engine, group, me, rank }
    }
}

#[pymethods]
impl Member {
    /// Issues an operation on dense CPU tensors (see the engine's `Call` for which kind takes which). With
    /// `asynchronous` False it also waits and returns None; otherwise it returns a Ticket.
    ///
    /// `op` is (number of torch's RedOpType, factor of PREMUL_SUM). Splits count elements. `root` is a group rank: the
    /// root or the peer. `finish` is called, by whichever rank completes the operation, when the data is there.
    /// `timeout` in seconds is None where none counts.
    /// Raises NeedsStaging, before anything happened, if a tensor is not dense CPU memory.
    #[pyo3(signature = (kind, inputs, outputs, *, op = None, root = None, tag = None, input_splits = vec![],
                        output_splits = vec![], members = vec![], asynchronous = false, finish = None,
                        timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn issue(
        &self,
        py: Python<'_>,
        kind: &str,
        inputs: Bound<'_, PyList>,
        outputs: Bound<'_, PyList>,
        op: Option<(u8, f64)>,
        root: Option<i64>,
        tag: Option<i64>,
        input_splits: Vec<u64>,
        output_splits: Vec<u64>,
        members: Vec<u32>,
        asynchronous: bool,
        finish: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<PyTicket>> {
        let (input_bufs, input_metas) = buffers(&inputs)?;
        let (output_bufs, output_metas) = buffers(&outputs)?;
        let record = OpRecord {
            rank: self.rank,
            group: self.group,
            seq: Seq(0),
            kind: parse::<OpKind>(kind)?,
            reduce_op: op.map(|(code, _)| reduce_op(code)).transpose()?,
            root: root.map(|r| group_rank(kind, r)).transpose()?,
            tag: tag.map(Tag),
            inputs: input_metas,
            outputs: output_metas,
            input_splits,
            output_splits,
            members: members.into_iter().map(GlobalRank).collect(),
            is_async: asynchronous,
            site: site::here(py)?,
        };
        let call = Call {
            record,
            inputs: input_bufs,
            outputs: output_bufs,
            factor: op.map_or(1.0, |(_, factor)| factor),
            keep: Some(Box::new((inputs.unbind(), outputs.unbind()))),
            timeout: baton::timeout(timeout)?,
            attachment: finish.map(|f| Box::new(f) as Box<_>),
        };
        self.carry_on(py, call, asynchronous)
    }

    /// An operation that Python carries out: all members bring a `payload`, and the one that comes last calls
    /// `combine(payloads)`, in the order of group ranks. `tensors` are only described, in reports.
    #[pyo3(signature = (kind, payload, combine, *, op, tensors, asynchronous, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn exchange(
        &self,
        py: Python<'_>,
        kind: &str,
        payload: Py<PyAny>,
        combine: Bound<'_, PyAny>,
        op: (u8, f64),
        tensors: Vec<Bound<'_, PyAny>>,
        asynchronous: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<PyTicket>> {
        let inputs = tensors.iter().map(meta_of).collect::<PyResult<_>>()?;
        let record = OpRecord {
            rank: self.rank,
            group: self.group,
            seq: Seq(0),
            kind: parse::<OpKind>(kind)?,
            reduce_op: Some(reduce_op(op.0)?),
            root: None,
            tag: None,
            inputs,
            outputs: SmallVec::new(),
            input_splits: Vec::new(),
            output_splits: Vec::new(),
            members: Vec::new(),
            is_async: asynchronous,
            site: site::here(py)?,
        };
        let call = Call {
            record,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            factor: op.1,
            keep: None,
            timeout: baton::timeout(timeout)?,
            attachment: Some(Box::new((self.me, payload))),
        };
        let issued = self.engine.issue(self.group, self.me, call).map_err(|e| refused(py, &e))?;
        let ticket = match issued {
            Issued::Disagrees => return Err(baton::aborted()),
            Issued::Pending(ticket) => ticket,
            Issued::Done { ticket, others } => {
                let mut brought: Vec<(GroupRank, Py<PyAny>)> = std::iter::once(&ticket)
                    .chain(&others)
                    .filter_map(Ticket::take_attachment)
                    .filter_map(|a| a.downcast::<(GroupRank, Py<PyAny>)>().ok())
                    .map(|b| *b)
                    .collect();
                brought.sort_by_key(|(rank, _)| *rank);
                let payloads: Vec<Py<PyAny>> = brought.into_iter().map(|(_, p)| p).collect();
                #[cfg(feature = "mutants")]
                crate::mutants::combine(py, kind, payloads, &combine)?;
                #[cfg(not(feature = "mutants"))]
                combine.call1((payloads,))?;
                ticket
            }
        };
        self.result(py, ticket, asynchronous)
    }

    /// The sequence number as the backend counts it.
    fn next_seq(&self) -> u64 {
        self.engine.next_seq(self.group, self.me)
    }

    /// This member's group rank.
    #[getter]
    fn group_rank(&self) -> u32 {
        self.me.0
    }

    /// This member's global rank.
    #[getter]
    fn global_rank(&self) -> u32 {
        self.rank.0
    }
}

impl Member {
    fn carry_on(&self, py: Python<'_>, call: Call, asynchronous: bool) -> PyResult<Option<PyTicket>> {
        let issued = self.engine.issue(self.group, self.me, call).map_err(|e| refused(py, &e))?;
        let ticket = match issued {
            Issued::Disagrees => return Err(baton::aborted()),
            Issued::Pending(ticket) => ticket,
            Issued::Done { ticket, others } => {
                for done in std::iter::once(&ticket).chain(&others) {
                    finish(py, done)?;
                }
                ticket
            }
        };
        self.result(py, ticket, asynchronous)
    }

    fn result(&self, py: Python<'_>, ticket: Ticket, asynchronous: bool) -> PyResult<Option<PyTicket>> {
        let ticket = PyTicket { engine: self.engine.clone(), ticket };
        if asynchronous {
            return Ok(Some(ticket));
        }
        ticket.wait(py, None, false, false)?;
        Ok(None)
    }
}

/// Number and factor of a torch ReduceOp.
#[pyfunction]
pub(crate) fn reduce_op_of(py: Python<'_>, op: Bound<'_, PyAny>) -> PyResult<(u8, f64)> {
    let code: u8 = op.getattr(intern!(py, "op"))?.getattr(intern!(py, "value"))?.extract()?;
    let premultiplies = reduce_op(code)? == ReduceOp::PremulSum;
    // The pickled state is (op, factor); the factor may be a tensor of one element.
    let state = || op.call_method0(intern!(py, "__getstate__"))?.get_item(1)?.extract();
    Ok((code, if premultiplies { state()? } else { 1.0 }))
}

/// The name of a torch dtype as allranks knows it; NotImplementedError if it does not.
#[pyfunction]
pub(crate) fn dtype_name(py: Python<'_>, dtype: Bound<'_, PyAny>) -> PyResult<&'static str> {
    Ok(tensor::dtype_of(py, &dtype)?.name())
}
