//! A program as plain Python: what both sides run, and what the user gets to read. One text, so one meaning.

mod calls;
mod merge;
mod messages;
mod tensors;

use std::fmt::Write as _;

use allranks_core::GlobalRank;

use crate::class::Class;
use crate::program::{Action, Group, How, Program, Step};

use calls::Lines;

/// The rule of the tensors, for programs that stand alone.
const VALUES: &str = include_str!("../../../tests/soak/values.py");

/// The program without what makes it stand alone. Steps of the class `spoiled` get a wrong bit.
pub fn body(program: &Program, spoiled: Option<Class>) -> String {
    let mut text = String::new();
    for (index, group) in program.groups.iter().enumerate() {
        text.push_str(&new_group(program, index, group));
    }
    let write = |text: &mut String, action: Action, indent: &str, rank: Option<GlobalRank>| {
        let (Action::Start(index) | Action::Wait(index)) = action;
        let step = &program.steps[index];
        let Lines { start, finish } = calls::lines(program, index, spoiled == Some(step.class), rank);
        let lines = match action {
            Action::Start(_) if step.asynchronous => start,
            Action::Start(_) => [start, finish].concat(),
            Action::Wait(_) => finish,
        };
        for line in lines {
            let _ = writeln!(text, "{indent}{line}");
        }
    };
    if let Some(actions) = merge::merged(program) {
        for action in actions {
            let (Action::Start(index) | Action::Wait(index)) = action;
            let takers = program.participants(&program.steps[index]);
            let everyone = takers.len() == program.world as usize;
            if !everyone && !program.steps[index].class.is_message() {
                let _ = writeln!(text, "{}", only(&takers));
            }
            let alone = if let [one] = takers[..] { Some(one) } else { None };
            // Messages say themselves who does what.
            let wrapped = !everyone && !program.steps[index].class.is_message();
            write(&mut text, action, if wrapped { "    " } else { "" }, alone.filter(|_| wrapped));
        }
    } else {
        // Ranks go about it in orders of their own.
        for (rank, order) in program.orders.iter().enumerate().filter(|(_, order)| !order.is_empty()) {
            let _ = writeln!(text, "if rank == {rank}:");
            for &action in order {
                write(&mut text, action, "    ", Some(GlobalRank(rank as u32)));
            }
        }
    }
    text
}

/// The program as a script that torchrun and allranks run.
pub fn script(program: &Program, command: &str) -> String {
    let world = program.world;
    let (doc, rule) = VALUES.split_once("from __future__").expect("values.py begins with its docstring");
    let imports = if uses_functional(program) {
        "\nimport torch.distributed as dist\nimport torch.distributed._functional_collectives as funcol\n"
    } else {
        "\nimport torch.distributed as dist\n"
    };
    let rule = rule.replacen("\nimport torch\n", &format!("\nimport torch{imports}"), 1);
    let rule = rule.replacen("SEED = 0", &format!("SEED = {}", program.seed), 1);
    format!(
        "# torchrun --standalone --nproc-per-node {world} THIS_FILE\n# allranks run -n {world} THIS_FILE\n# made by: \
         {command}\n{doc}from __future__{rule}\n\ndef note(step: int, *results: Any) -> None:\n    print(f\"rank \
         {{rank}} step {{step}}: {{' | '.join(map(mark, results))}}\", flush=True)\n\n\ntorch.set_num_threads(1)\n\
         dist.init_process_group(\"gloo\")\nrank, world = dist.get_rank(), dist.get_world_size()\n\n\
         {}\ndist.monitored_barrier()\ndist.destroy_process_group()\n",
        body(program, None)
    )
}

fn uses_functional(program: &Program) -> bool {
    program.steps.iter().any(|step| step.class.is_functional())
}

fn only(ranks: &[GlobalRank]) -> String {
    match ranks {
        [one] => format!("if rank == {one}:"),
        more => format!("if rank in ({}):", list(more)),
    }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Every use of a group names it, the world's included.
fn new_group(program: &Program, index: usize, group: &Group) -> String {
    let ranks = list(&group.ranks);
    match group.how {
        How::World => format!("g{index} = dist.group.WORLD\n"),
        How::New => format!("g{index} = dist.new_group([{ranks}])\n"),
        How::Unsorted => format!("g{index} = dist.new_group([{ranks}], sort_ranks=False)\n"),
        How::Local => {
            format!(
                "{}\n    g{index} = dist.new_group([{ranks}], use_local_synchronization=True)\n",
                only(&group.ranks)
            )
        }
        How::Split => {
            let others: Vec<GlobalRank> =
                (0..program.world).map(GlobalRank).filter(|rank| !group.ranks.contains(rank)).collect();
            format!("g{index} = dist.split_group(split_ranks=[[{ranks}], [{}]])\n", list(&others))
        }
    }
}

/// The name of a step's group.
fn group_name(step: &Step) -> String {
    format!("g{}", step.group)
}
