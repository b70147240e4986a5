//! The lines of one step.

use allranks_core::{GlobalRank, GroupRank};

use super::messages::messages;
use super::tensors::{input, inputs, output, output_lists, outputs, rows_of, tuple};
use super::{group_name, only};
use crate::class::Class;
use crate::program::{Program, Step};
use crate::shape::whole;

/// What is called to start a step, and what when it is finished.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) start: Vec<String>,
    pub(super) finish: Vec<String>,
}

/// A call, and what is to be noted of it.
struct Call {
    before: Vec<String>,
    /// Without the last arguments.
    call: String,
    /// What is noted.
    results: String,
    /// Only there is a result.
    on: Option<GroupRank>,
}

/// The lines of a step; where they stand, only `rank` comes by, if there is one.
pub(super) fn lines(program: &Program, index: usize, spoiled: bool, rank: Option<GlobalRank>) -> Lines {
    let step = &program.steps[index];
    if step.class.is_message() {
        return messages(program, index, spoiled, rank);
    }
    let Call { before, call, results, on } = call(program, step, index);
    let mut lines = Lines { start: before, finish: Vec::new() };
    let mut noted = Vec::new();
    if spoiled {
        noted.push(format!("for t in listed({results}): spoil(t)"));
    }
    noted.push(format!("note({index}, *listed({results}))"));
    if step.refused {
        lines.start.push("try:".to_owned());
        lines.start.push(format!("    {call})"));
        lines.start.push(format!("    note({index}, \"done\")"));
        lines.start.push("except Exception as error:".to_owned());
        lines.start.push(format!("    note({index}, type(error).__name__)"));
        return lines;
    }
    if step.class.is_functional() {
        lines.start.push(format!("{call})"));
        lines.finish.push(format!("x{index} = funcol.wait_tensor(y{index})"));
    } else if step.class.is_managed() {
        let asynchronous = if step.asynchronous { ", async_ops=True" } else { "" };
        let name = if step.asynchronous { format!(" as w{index}") } else { String::new() };
        lines.start.push(format!("with dist._coalescing_manager(group={}{asynchronous}){name}:", group_name(step)));
        lines.start.push(format!("    {call})"));
    } else if step.asynchronous {
        lines.start.push(format!("w{index} = {call}, async_op=True)"));
    } else {
        lines.start.push(format!("{call})"));
    }
    if step.asynchronous && !step.class.is_functional() {
        lines.finish.push(format!("w{index}.wait()"));
    }
    match on {
        Some(root) => {
            let root = program.members(step)[root.index()];
            lines.finish.extend(wrapped(root, rank, noted));
        }
        None => lines.finish.extend(noted),
    }
    lines
}

fn call(program: &Program, step: &Step, k: usize) -> Call {
    let n = program.members(step).len();
    let group = format!("group={}", group_name(step));
    let part = tuple(&step.shape);
    let all = tuple(&whole(step, n));
    let op = step.op.map_or(String::new(), |op| op.name().to_uppercase());
    // torch makes an op with a factor by a function.
    let op =
        if op == "PREMUL_SUM" { "dist._make_nccl_premul_sum(0.5)".to_owned() } else { format!("dist.ReduceOp.{op}") };
    let root = step.root.map(|root| program.members(step)[root.index()]);
    let rooted = |side: &str| match (step.root, root) {
        (Some(inside), _) if step.by_group_rank => format!("group_{side}={inside}"),
        (_, Some(global)) => format!("{side}={global}"),
        _ => unreachable!("checked: rooted operations have a root"),
    };
    let at_root = |list: String| format!("{list} if rank == {} else None", root.expect("checked: there is a root"));
    let mut before = Vec::new();
    let mut results = format!("x{k}");
    let mut on = None;
    let count = step.count;
    // Of several tensors, each is longer than the one before.
    let growing = |index: &str, whole: bool| {
        let first = step.shape.first().copied();
        let times = if whole { format!(" * {n}") } else { String::new() };
        match first {
            None => "()".to_owned(),
            Some(first) => rows_of(step, &format!("({first} + {index}){times}")),
        }
    };
    if !step.rows.is_empty() {
        let rows: Vec<String> = step.rows.iter().map(|row| format!("[{}]", super::list(row))).collect();
        before.push(format!("rows, me = [{}], dist.get_rank({})", rows.join(", "), group_name(step)));
    }
    let mut set = |name: &str, value: String| before.push(format!("{name}{k} = {value}"));
    let call = match step.class {
        Class::AllReduce => {
            set("x", input(step, &part, 0));
            format!("dist.all_reduce(x{k}, op={op}, {group}")
        }
        Class::AllReduceSparse => {
            let odd = if step.odd { ", odd=True" } else { "" };
            let dtype = step.dtype.expect("checked").name();
            set("x", format!("scarce(rank, \"{dtype}\", {part}, {}{odd})", step.key));
            format!("dist.all_reduce(x{k}, op={op}, {group}")
        }
        Class::AllReduceCoalesced => {
            set("x", inputs(step, &|i| growing(i, false), count));
            format!("dist.all_reduce_coalesced(x{k}, op={op}, {group}")
        }
        Class::AllReduceManaged => {
            set("x", inputs(step, &|i| growing(i, false), count));
            format!("for t in x{k}: dist.all_reduce(t, op={op}, {group}")
        }
        Class::Reduce => {
            set("x", input(step, &part, 0));
            on = step.root;
            format!("dist.reduce(x{k}, {}, op={op}, {group}", rooted("dst"))
        }
        Class::ReduceScatter => {
            set("x", output(step, &part, 0));
            set("y", inputs(step, &|_| part.clone(), n));
            format!("dist.reduce_scatter(x{k}, y{k}, op={op}, {group}")
        }
        Class::ReduceScatterTensor => {
            set("x", output(step, &part, 0));
            set("y", input(step, &all, 0));
            format!("dist.reduce_scatter_tensor(x{k}, y{k}, op={op}, {group}")
        }
        Class::ReduceScatterManaged => {
            set("x", outputs(step, &growing("i", false), count));
            set("y", inputs(step, &|i| growing(i, true), count));
            format!("for o, t in zip(x{k}, y{k}): dist.reduce_scatter_tensor(o, t, op={op}, {group}")
        }
        Class::Broadcast => {
            set("x", input(step, &part, 0));
            format!("dist.broadcast(x{k}, {}, {group}", rooted("src"))
        }
        Class::AllGather => {
            set("x", outputs(step, &part, n));
            set("y", input(step, &part, 0));
            format!("dist.all_gather(x{k}, y{k}, {group}")
        }
        Class::AllGatherIntoTensor => {
            set("x", output(step, &all, 0));
            set("y", input(step, &part, 0));
            format!("dist.all_gather_into_tensor(x{k}, y{k}, {group}")
        }
        Class::AllGatherCoalesced => {
            set("x", output_lists(step, &growing("j", false), n, count));
            set("y", inputs(step, &|i| growing(i, false), count));
            format!("dist.all_gather_coalesced(x{k}, y{k}, {group}")
        }
        Class::AllGatherManaged => {
            set("x", outputs(step, &growing("i", true), count));
            set("y", inputs(step, &|i| growing(i, false), count));
            format!("for o, t in zip(x{k}, y{k}): dist.all_gather_into_tensor(o, t, {group}")
        }
        Class::Gather => {
            set("x", at_root(outputs(step, &part, n)));
            set("y", input(step, &part, 0));
            on = step.root;
            format!("dist.gather(y{k}, x{k}, {}, {group}", rooted("dst"))
        }
        Class::Scatter => {
            set("x", output(step, &part, 0));
            set("y", at_root(inputs(step, &|_| part.clone(), n)));
            format!("dist.scatter(x{k}, y{k}, {}, {group}", rooted("src"))
        }
        Class::AllToAll => {
            set("x", outputs(step, &part, n));
            set("y", inputs(step, &|_| part.clone(), n));
            format!("dist.all_to_all(x{k}, y{k}, {group}")
        }
        Class::AllToAllSingle | Class::FunAllToAll => {
            let uneven = !step.rows.is_empty();
            let (sent, received) = if uneven {
                (rows_of(step, "sum(rows[me])"), rows_of(step, "sum(r[me] for r in rows)"))
            } else {
                (all.clone(), all.clone())
            };
            if step.class == Class::FunAllToAll {
                set("x", input(step, &sent, 0));
                let splits = if uneven { "[r[me] for r in rows], rows[me]" } else { "None, None" };
                format!("y{k} = funcol.all_to_all_single(x{k}, {splits}, {}", group_name(step))
            } else {
                set("x", output(step, &received, 0));
                set("y", input(step, &sent, 0));
                let splits = if uneven { "[r[me] for r in rows], rows[me], " } else { "" };
                format!("dist.all_to_all_single(x{k}, y{k}, {splits}{group}")
            }
        }
        Class::FunAllReduce => {
            set("x", input(step, &part, 0));
            format!("y{k} = funcol.all_reduce(x{k}, \"{}\", {}", step.op.expect("checked"), group_name(step))
        }
        Class::FunBroadcast => {
            set("x", input(step, &part, 0));
            let root = step.root.expect("checked");
            format!("y{k} = funcol.broadcast(x{k}, {root}, {}", group_name(step))
        }
        Class::FunAllGather => {
            set("x", input(step, &part, 0));
            format!("y{k} = funcol.all_gather_tensor(x{k}, 0, {}", group_name(step))
        }
        Class::FunReduceScatter => {
            set("x", input(step, &all, 0));
            let op = step.op.expect("checked");
            format!("y{k} = funcol.reduce_scatter_tensor(x{k}, \"{op}\", 0, {}", group_name(step))
        }
        Class::Barrier | Class::MonitoredBarrier => {
            results = String::from("\"passed\"");
            format!("dist.{}({group}", step.class.name())
        }
        Class::BroadcastObjects => {
            set("x", format!("[thing(rank, {}, i) for i in range({count})]", step.key));
            format!("dist.broadcast_object_list(x{k}, {}, {group}", rooted("src"))
        }
        Class::AllGatherObject => {
            set("x", format!("[None] * {n}"));
            format!("dist.all_gather_object(x{k}, thing(rank, {}, 0), {group}", step.key)
        }
        Class::GatherObject => {
            set("x", at_root(format!("[None] * {n}")));
            on = step.root;
            format!("dist.gather_object(thing(rank, {}, 0), x{k}, {}, {group}", step.key, rooted("dst"))
        }
        Class::ScatterObjects => {
            set("x", "[None]".to_owned());
            set("y", at_root(format!("[thing(rank, {}, i) for i in range({n})]", step.key)));
            format!("dist.scatter_object_list(x{k}, y{k}, {}, {group}", rooted("src"))
        }
        Class::SendRecv | Class::IsendIrecv | Class::Batch => unreachable!("messages have lines of their own"),
    };
    Call { before, call, results, on }
}

/// Lines for one rank, where only `rank` or everybody comes by.
pub(super) fn wrapped(target: GlobalRank, rank: Option<GlobalRank>, lines: Vec<String>) -> Vec<String> {
    match rank {
        Some(here) if here == target => lines,
        Some(_) => Vec::new(),
        None => std::iter::once(only(&[target])).chain(lines.into_iter().map(|line| format!("    {line}"))).collect(),
    }
}
