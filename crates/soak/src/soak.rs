//! Runs many programs on both sides at once, compares, shrinks, prints.

use std::io::{Error, Result};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use allranks_soak::{
    Class, Difference, Lost, Program, Reply, Schedule, Side, Table, Verdict, Which, body, compare, generate, script,
    shrink,
};

use crate::arguments::Arguments;

/// Programs that one side may be ahead of the other.
const AHEAD: usize = 64;
/// Differences of one program that are printed.
const SHOWN: usize = 6;

/// Both sides, for one program at a time.
struct Pair {
    ours: Side,
    gloo: Side,
    spoil: Option<Class>,
}

/// True if nothing differed.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let programs = programs(arguments)?;
    let folder = arguments.logs.as_path();
    std::fs::create_dir_all(folder)?;
    let execute = execute_py()?;
    let side = |which: Which| {
        let log = folder.join(format!("{}.log", which.name()));
        // Each run has its own logs.
        std::fs::write(&log, "")?;
        Ok::<_, Error>(Side::new(which, &arguments.python, &execute, &log))
    };
    let mut pair = Pair { ours: side(Which::Ours)?, gloo: side(Which::Gloo)?, spoil: arguments.spoil };
    let begin = Instant::now();
    let mut table = Table::default();
    let mut bad = Vec::new();
    pair.run_all(&programs, |program, verdict| {
        table.add(program, &verdict.steps());
        if !verdict.is_same() {
            eprintln!("seed {}: {}\n{}", program.seed, headline(&verdict), details(&verdict));
            bad.push((program, verdict));
        }
    });
    println!("{}", table.text());
    eprintln!("{:.0} s", begin.elapsed().as_secs_f64());
    let before = bad.len();
    bad.retain(|(program, verdict)| {
        // A connection that the system refused, say. Wrong bytes count however seldom they come.
        let again = verdict.is_accident() && pair.verdict(program).is_same();
        if again {
            println!("seed {}: a gloo process failed once and not again: {}", program.seed, headline(verdict));
        }
        !again
    });
    let accidents = before - bad.len();
    for (program, verdict) in bad.iter().take(arguments.shrink) {
        let smallest = shrink(program, &mut |candidate| pair.verdict(candidate).is_like(verdict));
        let verdict = pair.verdict(&smallest);
        println!("seed {}, as small as it gets:\n", program.seed);
        println!("{}", script(&smallest, &format!("soak run --count 1 --seed {}", program.seed)));
        println!("# as data: {}", serde_json::to_string(&smallest)?);
        println!("# {}\n{}", headline(&verdict), details(&verdict));
    }
    let count = programs.len() - accidents;
    if bad.is_empty() {
        println!("{count} programs: 0 differing bytes");
    } else {
        let seeds: Vec<String> = bad.iter().map(|(program, _)| program.seed.to_string()).collect();
        println!("{} of {count} programs differ, of the seeds {}", bad.len(), seeds.join(" "));
    }
    Ok(bad.is_empty())
}

/// The first differences, as comments.
fn details(verdict: &Verdict) -> String {
    let Verdict::Differs(all) = verdict else { return String::new() };
    let one = |d: &Difference| {
        let step = d.step.map_or("the end".to_owned(), |step| format!("step {step}"));
        format!("# rank {} {step}\n#   gloo: {}\n#   ours: {}\n", d.rank, d.gloo, d.ours)
    };
    all.iter().take(SHOWN).map(one).collect()
}

impl Pair {
    /// Each side goes through the programs on a thread of its own; `each` hears of them in order.
    fn run_all<'a>(&mut self, programs: &'a [Program], mut each: impl FnMut(&'a Program, Verdict)) {
        let Pair { ours, gloo, spoil } = self;
        let spoil = *spoil;
        std::thread::scope(|scope| {
            let (ours_send, ours_replies) = sync_channel(AHEAD);
            let (gloo_send, gloo_replies) = sync_channel(AHEAD);
            scope.spawn(move || {
                for program in programs {
                    if ours_send.send(one(ours, program, spoil)).is_err() {
                        return;
                    }
                }
            });
            scope.spawn(move || {
                for program in programs {
                    if gloo_send.send(one(gloo, program, None)).is_err() {
                        return;
                    }
                }
            });
            for (program, (a, b)) in programs.iter().zip(ours_replies.iter().zip(gloo_replies.iter())) {
                each(program, compare(&a, &b));
            }
        });
    }

    fn verdict(&mut self, program: &Program) -> Verdict {
        compare(&one(&mut self.ours, program, self.spoil), &one(&mut self.gloo, program, None))
    }
}

fn one(side: &mut Side, program: &Program, spoil: Option<Class>) -> std::result::Result<Reply, Lost> {
    // Every second program with a schedule of its own.
    let schedule = if program.seed.is_multiple_of(2) { "round-robin" } else { "random" };
    let schedule = Schedule { schedule, schedule_seed: program.seed };
    side.run(program.world, program.seed, &body(program, spoil), schedule)
}

fn headline(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Same => "the same".to_owned(),
        Verdict::Differs(all) => {
            let steps: Vec<String> = verdict.steps().iter().map(ToString::to_string).collect();
            let errors = all.iter().filter(|d| d.step.is_none()).count();
            format!("differs in steps {} and in {errors} exceptions", steps.join(", "))
        }
        Verdict::Finding(text) => format!("allranks finds fault with a correct program: {text}"),
        Verdict::Failed(error) => format!("fails on both sides: {error}"),
        Verdict::Lost(_, why) => why.clone(),
    }
}

fn programs(arguments: &Arguments) -> Result<Vec<Program>> {
    let Some(file) = &arguments.programs else { return Ok(arguments.seeds().map(generate).collect()) };
    let text = std::fs::read_to_string(file)?;
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The executor, from anywhere inside the repository.
fn execute_py() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    let found = here.ancestors().map(|folder| folder.join("tests/soak/execute.py")).find(|path| path.exists());
    found.ok_or_else(|| Error::other("tests/soak/execute.py is not there: run it inside the repository"))
}
