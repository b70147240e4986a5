//! A run that can be started: every option checked against the others and against the file system.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use allranks_core::{GlobalRank, Profile, WorldSize};
use allranks_report::{FillRule, reproduce};

use crate::UsageError;
use crate::args::{ClockChoice, RunArgs, SchedulePolicy};

/// The world without `-n`: the smallest in which ranks can disagree.
pub const DEFAULT_WORLD: WorldSize = WorldSize(2);
/// `--watchdog` where none is given.
pub const DEFAULT_WATCHDOG: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, or a folder or archive with a `__main__.py`; the path as written.
    Script(PathBuf),
    /// A module, as `python -m` takes it.
    Module(String),
}

/// A checked `allranks run`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// How many ranks; at least 1.
    pub world: WorldSize,
    /// One-rank mode: which; inside the world.
    pub rank: Option<GlobalRank>,
    /// Overrides the profile that follows from the script's backend.
    pub profile: Option<Profile>,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Who goes on at a hand-over.
    pub schedule: SchedulePolicy,
    /// Whether sleeps and time-outs take time.
    pub clock: ClockChoice,
    /// What peers hold in one-rank mode.
    pub fill: FillRule,
    /// Where findings go, as an absolute path: the program may change its folder.
    pub findings: Option<PathBuf>,
    /// Output lines say which rank wrote them.
    pub tag_output: bool,
    /// Post-mortem debugger.
    pub pdb: bool,
    /// No closing line.
    pub quiet: bool,
    /// Warnings fail.
    pub strict: bool,
    /// Real processes with this backend.
    pub on: Option<Profile>,
    /// The guard was switched off.
    pub allow_launcher: bool,
    /// How long a rank may run without waiting; `None`: for ever.
    pub watchdog: Option<Duration>,
    /// What to run.
    pub target: Target,
    /// The program's own arguments.
    pub args: Vec<OsString>,
}

impl RunPlan {
    pub(crate) fn check(args: RunArgs) -> Result<Self, UsageError> {
        let world = args.world.map_or(DEFAULT_WORLD, WorldSize);
        check_ranks(&args, world)?;
        check_effect(&args)?;
        let (target, rest) = target(&args)?;
        Ok(Self {
            world,
            rank: args.rank.map(GlobalRank),
            profile: args.profile,
            seed: args.seed,
            schedule: args.schedule.unwrap_or(SchedulePolicy::RoundRobin),
            clock: args.clock.unwrap_or(ClockChoice::Real),
            fill: args.fill.unwrap_or(FillRule::Uniform),
            findings: args.findings.as_deref().map(findings_path).transpose()?,
            tag_output: args.tag_output,
            pdb: args.pdb,
            quiet: args.quiet,
            strict: args.strict,
            on: args.on,
            allow_launcher: args.allow_launcher,
            watchdog: Some(args.watchdog.unwrap_or(DEFAULT_WATCHDOG)).filter(|limit| !limit.is_zero()),
            target,
            args: rest,
        })
    }

    /// The command that does the same again: the size, the seed and whatever differs from the defaults, without
    /// options that only change what is written. Starts with `reproduce:`.
    pub fn reproduce(&self) -> String {
        let mut words: Vec<String> = ["allranks", "run", "-n"].map(str::to_owned).into();
        words.push(self.world.to_string());
        let mut option =
            |name: &str, value: Option<String>| words.extend(value.into_iter().flat_map(|v| [name.to_owned(), v]));
        option("--rank", self.rank.map(|rank| rank.to_string()));
        option("--profile", self.profile.map(|profile| profile.to_string()));
        option("--seed", self.on.is_none().then(|| self.seed.to_string()));
        option("--schedule", (self.schedule != SchedulePolicy::RoundRobin).then(|| self.schedule.name()));
        option("--clock", (self.clock != ClockChoice::Real).then(|| self.clock.name()));
        option("--fill", (self.fill != FillRule::Uniform).then(|| self.fill.name().to_owned()));
        option("--on", self.on.map(|backend| backend.to_string()));
        let watchdog = self.watchdog.unwrap_or_default();
        option("--watchdog", (watchdog != DEFAULT_WATCHDOG).then(|| watchdog.as_secs_f64().to_string()));
        words.extend(self.allow_launcher.then(|| "--allow-launcher".to_owned()));
        match &self.target {
            Target::Script(path) => words.push(path.to_string_lossy().into_owned()),
            Target::Module(name) => words.extend(["-m".to_owned(), name.clone()]),
        }
        words.extend(self.args.iter().map(|arg| arg.to_string_lossy().into_owned()));
        reproduce::render(words.iter().map(String::as_str))
    }
}

fn check_ranks(args: &RunArgs, world: WorldSize) -> Result<(), UsageError> {
    match args.rank {
        _ if world.0 == 0 => Err(UsageError::EmptyWorld),
        Some(rank) if args.world.is_none() => Err(UsageError::RankWithoutWorld { rank }),
        Some(rank) if rank >= world.0 => Err(UsageError::RankOutside { rank, world: world.0 }),
        _ => Ok(()),
    }
}

/// An option that would do nothing is refused: the user expects something of it.
fn check_effect(args: &RunArgs) -> Result<(), UsageError> {
    let error = |option, mode, hint| Err(UsageError::NoEffect { option, mode, hint });
    if args.fill.is_some() && args.rank.is_none() {
        return error("--fill", "without --rank", "all ranks run and real data moves; nothing is filled in");
    }
    if args.schedule.is_some() && args.rank.is_some() {
        return error("--schedule", "with --rank", "one rank runs alone; there is nothing to schedule");
    }
    if args.clock.is_some() && args.rank.is_some() {
        return error("--clock", "with --rank", "one rank runs alone; nothing waits for others");
    }
    if args.on.is_some() {
        let real = "real processes run by themselves; leave it out";
        let given = [
            ("--rank", args.rank.is_some()),
            ("--profile", args.profile.is_some()),
            ("--schedule", args.schedule.is_some()),
            ("--clock", args.clock.is_some()),
            ("--watchdog", args.watchdog.is_some()),
            ("--pdb", args.pdb),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return error(option, "with --on", real);
        }
    }
    Ok(())
}

fn target(args: &RunArgs) -> Result<(Target, Vec<OsString>), UsageError> {
    if let Some((module, rest)) = args.module.split_first() {
        let name = module.to_string_lossy().into_owned();
        let part = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.contains(['/', '\\', ' ']);
        if !name.split('.').all(part) || name.ends_with(".py") {
            return Err(UsageError::NotAModuleName { name });
        }
        return Ok((Target::Module(name), rest.to_vec()));
    }
    let (script, rest) = args.script.split_first().ok_or(UsageError::NoTarget)?;
    let path = PathBuf::from(script);
    if path.is_dir() {
        if !path.join("__main__.py").is_file() {
            return Err(UsageError::FolderWithoutMain { path });
        }
    } else if !path.exists() {
        let module = looks_like_module(script).then(|| script.to_string_lossy().into_owned());
        return Err(UsageError::ScriptMissing { path, module });
    }
    Ok((Target::Script(path), rest.to_vec()))
}

/// `package.module`: dotted, without folders and without `.py`.
fn looks_like_module(script: &OsStr) -> bool {
    let text = script.to_string_lossy();
    text.contains('.') && !text.ends_with(".py") && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
}

fn findings_path(path: &Path) -> Result<PathBuf, UsageError> {
    let error = |reason| UsageError::FindingsPath { path: path.to_owned(), reason };
    let absolute = std::path::absolute(path).map_err(|_| error("the path is empty"))?;
    if absolute.is_dir() {
        return Err(error("it is a folder"));
    }
    match absolute.parent() {
        Some(folder) if folder.is_dir() => Ok(absolute),
        _ => Err(error("its folder does not exist")),
    }
}
