//! What torch hands to a backend's methods, taken apart.

use allranks_core::{GroupRank, OpKind, ReduceOp, Tag};
use allranks_engine::fake::{Op, PlanError, Rules, Steps};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;

use super::dlpack::Tensor;

pub(super) type Tensors<'py> = SmallVec<[Tensor<'py>; 2]>;

/// A method of `c10d.Backend`, by the name under which torch calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Allreduce,
    AllreduceCoalesced,
    AllreduceSparse,
    Broadcast,
    Reduce,
    Allgather,
    AllGatherSingle,
    AllgatherCoalesced,
    AllGatherSingleCoalesced,
    Gather,
    Scatter,
    ReduceScatter,
    ReduceScatterSingle,
    ReduceScatterSingleCoalesced,
    Alltoall,
    AllToAllSingle,
    Send,
    Recv,
    RecvAnysource,
    Barrier,
}

/// Name of each method and the kind of operation it is.
pub(super) const METHODS: [(&str, Method, OpKind); 20] = [
    ("allreduce", Method::Allreduce, OpKind::AllReduce),
    ("allreduce_coalesced", Method::AllreduceCoalesced, OpKind::AllReduceCoalesced),
    ("allreduce_sparse", Method::AllreduceSparse, OpKind::AllReduceSparse),
    ("broadcast", Method::Broadcast, OpKind::Broadcast),
    ("reduce", Method::Reduce, OpKind::Reduce),
    ("allgather", Method::Allgather, OpKind::AllGather),
    ("all_gather_single", Method::AllGatherSingle, OpKind::AllGatherSingle),
    ("allgather_coalesced", Method::AllgatherCoalesced, OpKind::AllGatherCoalesced),
    ("all_gather_single_coalesced", Method::AllGatherSingleCoalesced, OpKind::AllGatherCoalesced),
    ("gather", Method::Gather, OpKind::Gather),
    ("scatter", Method::Scatter, OpKind::Scatter),
    ("reduce_scatter", Method::ReduceScatter, OpKind::ReduceScatter),
    ("reduce_scatter_single", Method::ReduceScatterSingle, OpKind::ReduceScatterSingle),
    ("reduce_scatter_single_coalesced", Method::ReduceScatterSingleCoalesced, OpKind::ReduceScatterCoalesced),
    ("alltoall", Method::Alltoall, OpKind::AllToAll),
    ("all_to_all_single", Method::AllToAllSingle, OpKind::AllToAllSingle),
    ("send", Method::Send, OpKind::Send),
    ("recv", Method::Recv, OpKind::Recv),
    ("recv_anysource", Method::RecvAnysource, OpKind::Recv),
    ("barrier", Method::Barrier, OpKind::Barrier),
];

/// One call, understood.
pub(super) struct Request<'py> {
    pub outs: Tensors<'py>,
    pub ins: Tensors<'py>,
    /// The operation works in place: what it writes is also what it reads.
    pub in_place: bool,
    pub steps: Steps,
    pub op: Option<Op>,
    pub root: Option<GroupRank>,
    pub tag: Option<Tag>,
    /// Rows to and from each member, as given.
    pub splits: Option<(Vec<u64>, Vec<u64>)>,
    pub is_async: bool,
}

fn tensors<'py>(list: &Bound<'py, PyAny>, into: &mut Tensors<'py>) -> PyResult<()> {
    match list.cast::<PyList>() {
        Ok(list) => list.iter().try_for_each(|t| Tensor::new(t).map(|t| into.push(t))),
        Err(_) => list.try_iter()?.try_for_each(|t| Tensor::new(t?).map(|t| into.push(t))),
    }
}

fn lens(tensors: &[Tensor<'_>]) -> SmallVec<[usize; 8]> {
    tensors.iter().map(|t| t.numel).collect()
}

fn refused(error: PlanError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn rank(object: &Bound<'_, PyAny>) -> PyResult<GroupRank> {
    object.extract().map(GroupRank)
}

static REDUCE_OPS: PyOnceLock<Vec<(isize, ReduceOp)>> = PyOnceLock::new();

/// The reduce op behind torch's object, whose hash is the number of the op.
fn reduce_op(object: &Bound<'_, PyAny>) -> PyResult<Op> {
    let py = object.py();
    let table = REDUCE_OPS.get_or_try_init(py, || {
        let class = py.import("torch.distributed")?.getattr("ReduceOp")?;
        let entry = |&op: &ReduceOp| {
            let member = class.getattr(op.name().to_uppercase().as_str()).ok()?;
            Some(member.hash().map(|hash| (hash, op)))
        };
        ReduceOp::ALL.iter().filter_map(entry).collect::<PyResult<Vec<_>>>()
    })?;
    let hash = object.hash()?;
    let op = table.iter().find(|(h, _)| *h == hash).map(|(_, op)| *op);
    let op =
        op.ok_or_else(|| PyNotImplementedError::new_err(format!("allranks does not know the reduce op {object}")))?;
    if op != ReduceOp::PremulSum {
        return Ok(Op::plain(op));
    }
    // Its pickled state: (op, factor), the factor a number or a tensor of one element.
    let state = object.call_method0(intern!(py, "__getstate__"))?;
    let factor =
        state.cast::<PyTuple>()?.iter().last().ok_or_else(|| PyTypeError::new_err("PREMUL_SUM without factor"))?;
    let factor = match factor.extract::<f64>() {
        Ok(factor) => factor,
        Err(_) => factor.call_method0(intern!(py, "item"))?.extract()?,
    };
    Ok(Op { op, factor })
}

/// Rows as elements of a tensor.
fn elements(t: &Tensor<'_>, rows: &[u64]) -> Vec<usize> {
    let total = t.shape.0.first().copied().unwrap_or(1);
    let width = (t.numel as u64).checked_div(total).unwrap_or(0);
    rows.iter().map(|&r| usize::try_from(r * width).expect("64 bits")).collect()
}

impl<'py> Request<'py> {
    /// # Errors
    /// If the arguments are not what torch gives, or disagree with each other or with the group.
    pub fn new(method: Method, args: &Bound<'py, PyTuple>, rules: &Rules) -> PyResult<Self> {
        let mut r = Self {
            outs: Tensors::new(),
            ins: Tensors::new(),
            in_place: false,
            steps: Steps::new(),
            op: None,
            root: None,
            tag: None,
            splits: None,
            is_async: true,
        };
        let arg = |at: usize| args.get_item(at);
        match method {
            Method::Send | Method::Recv | Method::RecvAnysource => r.message(method, args, rules)?,
            Method::Barrier => r.options(args, 0, false, false)?,
            Method::Allreduce | Method::AllreduceCoalesced | Method::Broadcast | Method::Reduce => {
                r.in_place = true;
                tensors(&arg(0)?, &mut r.outs)?;
                r.options(args, 1, method != Method::Broadcast, matches!(method, Method::Broadcast | Method::Reduce))?;
                let (lens, root) = (lens(&r.outs), r.root.map_or(0, GroupRank::index));
                r.steps = match method {
                    Method::Broadcast => rules.broadcast(&lens, root),
                    Method::Reduce => rules.reduce(&lens, root),
                    _ => rules.all_reduce(&lens),
                };
            }
            Method::AllreduceSparse => {
                r.in_place = true;
                for tensor in arg(0)?.try_iter()? {
                    r.outs.push(Tensor::described(tensor?)?);
                }
                r.options(args, 1, true, false)?;
                r.steps = rules.all_reduce(&lens(&r.outs));
            }
            Method::AllGatherSingle | Method::ReduceScatterSingle => {
                r.outs.push(Tensor::new(arg(0)?)?);
                r.ins.push(Tensor::new(arg(1)?)?);
                r.options(args, 2, method == Method::ReduceScatterSingle, false)?;
                let (out, input) = (r.outs[0].numel, r.ins[0].numel);
                let steps = match method {
                    Method::AllGatherSingle => rules.all_gather_single(out, input),
                    _ => rules.reduce_scatter_single(0, out, input),
                };
                r.steps = steps.map_err(refused)?;
            }
            Method::AllToAllSingle => {
                r.outs.push(Tensor::new(arg(0)?)?);
                r.ins.push(Tensor::new(arg(1)?)?);
                let (to, from): (Vec<u64>, Vec<u64>) = (arg(2)?.extract()?, arg(3)?.extract()?);
                r.options(args, 4, false, false)?;
                let (out, input) = (&r.outs[0], &r.ins[0]);
                let (out_splits, in_splits) = (elements(out, &to), elements(input, &from));
                let steps = rules.all_to_all_single(out.numel, input.numel, &out_splits, &in_splits);
                r.steps = steps.map_err(refused)?;
                r.splits = Some((from, to));
            }
            _ => r.lists(method, args, rules)?,
        }
        Ok(r)
    }

    /// Methods on lists of tensors, or lists of lists.
    fn lists(&mut self, method: Method, args: &Bound<'py, PyTuple>, rules: &Rules) -> PyResult<()> {
        let (first, second) = (args.get_item(0)?, args.get_item(1)?);
        let nested_outs = matches!(method, Method::Allgather | Method::Gather | Method::AllgatherCoalesced);
        let nested_ins = matches!(method, Method::Scatter | Method::ReduceScatter);
        let flat = |nested: bool, list: &Bound<'py, PyAny>, into: &mut Tensors<'py>| -> PyResult<usize> {
            if !nested {
                tensors(list, into)?;
                return Ok(1);
            }
            let mut lists = 0;
            for inner in list.try_iter()? {
                tensors(&inner?, into)?;
                lists += 1;
            }
            Ok(lists)
        };
        let out_lists = flat(nested_outs, &first, &mut self.outs)?;
        flat(nested_ins, &second, &mut self.ins)?;
        let reduces = matches!(method, Method::ReduceScatter | Method::ReduceScatterSingleCoalesced);
        self.options(args, 2, reduces, matches!(method, Method::Gather | Method::Scatter))?;
        let (outs, ins) = (lens(&self.outs), lens(&self.ins));
        let root = self.root.map_or(0, GroupRank::index);
        let only = |lens: &[usize]| match lens {
            [len] => Ok(*len),
            _ => Err(PyTypeError::new_err(format!("{} tensors where one is needed", lens.len()))),
        };
        self.steps = match method {
            Method::Allgather => rules.all_gather(0, &outs, 0, only(&ins)?).map_err(refused)?,
            Method::Gather => rules.gather(&outs, only(&ins)?, root).map_err(refused)?,
            Method::Scatter => rules.scatter(only(&outs)?, &ins, root).map_err(refused)?,
            Method::ReduceScatter => rules.reduce_scatter(only(&outs)?, &ins).map_err(refused)?,
            Method::Alltoall => rules.all_to_all(&outs, &ins).map_err(refused)?,
            Method::ReduceScatterSingleCoalesced => {
                let mut steps = Steps::new();
                same_count(&outs, &ins)?;
                for (at, (&out, &input)) in outs.iter().zip(&ins).enumerate() {
                    steps.extend(rules.reduce_scatter_single(at, out, input).map_err(refused)?);
                }
                steps
            }
            Method::AllGatherSingleCoalesced => {
                let mut steps = Steps::new();
                same_count(&outs, &ins)?;
                for (at, (&out, &input)) in outs.iter().zip(&ins).enumerate() {
                    steps.extend(rules.all_gather_single_at(at, out, input).map_err(refused)?);
                }
                steps
            }
            _ => {
                // One list a member, of one tensor an input; the rules want one list an input.
                if out_lists != rules.size || outs.len() != rules.size * ins.len() {
                    return Err(PyTypeError::new_err(
                        "all_gather_coalesced: one output list a member, of one tensor an input",
                    ));
                }
                let mut sorted = Tensors::new();
                let mut given: Vec<Option<Tensor<'py>>> =
                    std::mem::take(&mut self.outs).into_iter().map(Some).collect();
                for i in 0..ins.len() {
                    for j in 0..rules.size {
                        sorted.push(given[j * ins.len() + i].take().expect("each once"));
                    }
                }
                self.outs = sorted;
                let outs = lens(&self.outs);
                let mut steps = Steps::new();
                for (i, &len) in ins.iter().enumerate() {
                    let first = i * rules.size;
                    let part = &outs[first..first + rules.size];
                    steps.extend(rules.all_gather(first, part, i, len).map_err(refused)?);
                }
                steps
            }
        };
        Ok(())
    }

    fn message(&mut self, method: Method, args: &Bound<'py, PyTuple>, rules: &Rules) -> PyResult<()> {
        let list = args.get_item(0)?;
        if method == Method::Send {
            tensors(&list, &mut self.ins)?;
        } else {
            tensors(&list, &mut self.outs)?;
            self.steps = rules.receive(&lens(&self.outs));
        }
        if method != Method::RecvAnysource {
            self.root = Some(rank(&args.get_item(1)?)?);
        }
        let tag = args.get_item(args.len() - 1)?;
        self.tag = Some(Tag(tag.extract()?));
        Ok(())
    }

    /// Reads the options object, which a caller from Python may leave out.
    fn options(&mut self, args: &Bound<'py, PyTuple>, at: usize, reduces: bool, rooted: bool) -> PyResult<()> {
        let py = args.py();
        let opts = args.get_item(at).ok();
        if reduces {
            self.op = Some(match &opts {
                Some(opts) => reduce_op(&opts.getattr(intern!(py, "reduceOp"))?)?,
                None => Op::plain(ReduceOp::Sum),
            });
        }
        if rooted {
            self.root = Some(match &opts {
                Some(opts) => rank(&opts.getattr(intern!(py, "rootRank"))?)?,
                None => GroupRank(0),
            });
        }
        if let Some(opts) = &opts {
            self.is_async = opts.getattr(intern!(py, "asyncOp"))?.is_truthy()?;
        }
        Ok(())
    }
}

fn same_count(outs: &[usize], ins: &[usize]) -> PyResult<()> {
    let message = || format!("{} outputs for {} inputs", outs.len(), ins.len());
    if outs.len() == ins.len() { Ok(()) } else { Err(PyTypeError::new_err(message())) }
}
