//! The lines of a step of messages: each rank has its own.

use allranks_core::{GlobalRank, GroupRank};

use super::calls::{Lines, wrapped};
use super::group_name;
use super::tensors::message;
use crate::class::Class;
use crate::program::{Message, Program, Step};

/// Where they stand, only `here` comes by, if there is one.
pub(super) fn messages(program: &Program, index: usize, spoiled: bool, here: Option<GlobalRank>) -> Lines {
    let step = &program.steps[index];
    let members = program.members(step);
    let mut lines = Lines::default();
    for rank in program.participants(step) {
        let is = |who: GroupRank| members[who.index()] == rank;
        let mut calls: Vec<(u32, bool, usize)> = Vec::new();
        for (k, one) in step.messages.iter().enumerate() {
            if is(one.from) {
                calls.push((one.sent_at, true, k));
            }
            if is(one.to) {
                calls.push((one.received_at, false, k));
            }
        }
        calls.sort_unstable();
        let mut start = Vec::new();
        let mut made = Vec::new();
        for &(_, sends, k) in &calls {
            let one = &step.messages[k];
            let name = format!("{}{index}_{k}", if sends { "y" } else { "x" });
            start.push(format!("{name} = {}", message(step, &one.shape, k, sends)));
            made.push(message_call(program, step, one, sends, &name));
        }
        let mut finish = Vec::new();
        match step.class {
            Class::SendRecv => start.extend(made.iter().map(|call| format!("w{index} = {call}"))),
            Class::Batch => {
                start.push(format!("w{index} = dist.batch_isend_irecv([{}])", made.join(", ")));
                finish.push(format!("for w in w{index}: w.wait()"));
            }
            _ => {
                start.push(format!("w{index} = [{}]", made.join(", ")));
                finish.push(format!("for w in w{index}: w.wait()"));
            }
        }
        let got: Vec<String> = calls.iter().filter(|c| !c.1).map(|c| format!("x{index}_{}", c.2)).collect();
        if spoiled && !got.is_empty() {
            finish.push(format!("for t in [{}]: spoil(t)", got.join(", ")));
        }
        // `recv` returns who sent.
        let who = if step.class == Class::SendRecv && !got.is_empty() { format!(", w{index}") } else { String::new() };
        finish.push(format!("note({index}{}{who})", got.iter().map(|x| format!(", {x}")).collect::<String>()));
        lines.start.extend(wrapped(rank, here, start));
        lines.finish.extend(wrapped(rank, here, finish));
    }
    lines
}

fn message_call(program: &Program, step: &Step, one: &Message, sends: bool, name: &str) -> String {
    let peer = if sends { one.to } else { one.from };
    let global = program.members(step)[peer.index()];
    let group = group_name(step);
    let tag = one.tag;
    let side = if sends { "dst" } else { "src" };
    let to = if step.by_group_rank { format!("group_{side}={peer}") } else { format!("{side}={global}") };
    match (step.class, sends) {
        (Class::SendRecv, true) => format!("dist.send({name}, {to}, group={group}, tag={tag})"),
        (Class::SendRecv, false) if one.any_source => format!("dist.recv({name}, group={group}, tag={tag})"),
        (Class::SendRecv, false) => format!("dist.recv({name}, {to}, group={group}, tag={tag})"),
        (Class::Batch, _) => {
            let what = if sends { "isend" } else { "irecv" };
            let peer = if step.by_group_rank { format!("group_peer={peer}") } else { format!("peer={global}") };
            format!("dist.P2POp(dist.{what}, {name}, {peer}, group={group}, tag={tag})")
        }
        (_, true) => format!("dist.isend({name}, {to}, group={group}, tag={tag})"),
        (_, false) => format!("dist.irecv({name}, {to}, group={group}, tag={tag})"),
    }
}
