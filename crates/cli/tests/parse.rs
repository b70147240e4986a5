//! Command lines that run, and what those that do not are told.

use std::ffi::OsString;
use std::path::Path;

use allranks_cli::{Parsed, RunPlan, Target, UsageError, command, parse};

/// A folder with `train.py`, `pkg/__main__.py` and the empty folder `bare`; words that name them are made absolute.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("train.py"), "").expect("writable");
        for folder in ["pkg", "bare"] {
            std::fs::create_dir(dir.path().join(folder)).expect("writable");
        }
        std::fs::write(dir.path().join("pkg/__main__.py"), "").expect("writable");
        Self(dir)
    }

    fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }

    fn parse_in(&self, line: &str, env: &[(&str, &str)]) -> Result<Parsed, UsageError> {
        let at = self.path();
        let words = line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('@', &format!("{at}/")));
        let argv = std::iter::once("allranks".to_owned()).chain(words).map(OsString::from);
        parse(argv, |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn plan(&self, line: &str) -> RunPlan {
        match self.parse_in(line, &[]) {
            Ok(Parsed::Run(plan)) => *plan,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// `line` and what its user is told.
    fn told(&self, line: &str) -> String {
        let error = self.parse_in(line, &[]).expect_err(line);
        let told = format!("$ allranks {line}\n{error}\nhint: {}\n", error.hint());
        told.replace(&self.path(), "DIR")
    }
}

fn strings(args: &[OsString]) -> Vec<&str> {
    args.iter().map(|arg| arg.to_str().expect("tests use text only")).collect()
}

#[test]
fn everything_after_the_script_belongs_to_it() {
    let files = Files::new();
    let plan = files.plan("run -n 4 --seed 3 @train.py --help -n 9 --seed=1 -- --rank x -m y --version");
    assert_eq!(plan.world.0, 4);
    assert_eq!(plan.seed, 3);
    assert_eq!(plan.target, Target::Script(Path::new(&files.path()).join("train.py")));
    assert_eq!(strings(&plan.args), ["--help", "-n", "9", "--seed=1", "--", "--rank", "x", "-m", "y", "--version"]);
}

#[test]
fn everything_after_the_module_belongs_to_it() {
    let files = Files::new();
    let plan = files.plan("run -n4 -m pkg.train --help -n 9 -- -x @train.py");
    assert_eq!((plan.world.0, &plan.target), (4, &Target::Module("pkg.train".into())));
    assert_eq!(strings(&plan.args)[..5], ["--help", "-n", "9", "--", "-x"]);
    assert_eq!(files.plan("run -mpkg").target, Target::Module("pkg".into()));
    assert!(files.plan("run -mpkg").args.is_empty());
}

#[test]
fn a_double_dash_may_stand_before_the_script() {
    let files = Files::new();
    let plan = files.plan("run -n 3 -- @train.py --lr 1");
    assert_eq!((plan.world.0, strings(&plan.args)), (3, vec!["--lr", "1"]));
}

#[test]
fn defaults() {
    let files = Files::new();
    insta::with_settings!({filters => vec![(files.path().as_str(), "DIR")]}, {
        insta::assert_debug_snapshot!(files.plan("run @train.py"));
    });
}

#[test]
fn a_world_that_does_not_fit_is_refused() {
    let files = Files::new();
    let told = |line: &str, available| allranks_cli::memory::check(&files.plan(line), available).err();
    let error = told("run -n 1000000 @train.py", Some(24 << 30)).expect("4 MiB for each of a million ranks");
    assert_eq!(error.to_string(), "a world of 1000000 ranks needs 3906.2 GiB at least, 24.0 GiB are free");
    assert_eq!(error.hint(), "at most -n 6144 here; with --rank R one rank runs alone, in a world of any size");
    assert_eq!(told("run -n 6144 @train.py", Some(24 << 30)), None);
    assert_eq!(told("run -n 1000000 @train.py", None), None);
    assert_eq!(told("run -n 1000000 --rank 7 @train.py", Some(1)), None);
    assert_eq!(told("run -n 1000000 --on gloo @train.py", Some(1)), None);
}

#[test]
fn the_command_that_reproduces_a_run() {
    let files = Files::new();
    let lines = [
        "run @train.py",
        "run -n 4 --seed 3 --schedule random --quiet --strict --findings @f.jsonl @train.py --name a*b",
        "run -n 4 --clock virtual @train.py",
        "run -n 64 --rank 17 --fill nan --profile nccl --watchdog 0 -m pkg.train -x",
        "run -n 4 --on gloo @pkg",
    ];
    let shown: Vec<String> =
        lines.iter().map(|line| files.plan(line).reproduce().replace(&files.path(), "DIR")).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn wrong_command_lines_get_one_line_and_a_hint() {
    let files = Files::new();
    let lines = [
        "",
        "train.py",
        "rnu @train.py",
        "check",
        "run",
        "run -n 4",
        "run -n 0 @train.py",
        "run -n -3 @train.py",
        "run -n four @train.py",
        "run -n 99999999999 @train.py",
        "run -n",
        "run -n 4 --rank 4 @train.py",
        "run -n 4 --rank -1 @train.py",
        "run --rank 17 @train.py",
        "run --sede 3 @train.py",
        "run --frobnicate @train.py",
        "run --nproc-per-node=8 @train.py",
        "run -x @train.py",
        "run --profile mpi @train.py",
        "run --fill ones -n 4 --rank 0 @train.py",
        "run --fill",
        "run --watchdog soon @train.py",
        "run --watchdog -1 @train.py",
        "run --seed 1 --seed 2 @train.py",
        "run --quiet=yes @train.py",
        "run @missing.py",
        "run pkg.train",
        "run @bare",
        "run -m",
        "run -m @train.py",
        "run -m --help",
        "run --findings @no/such/f.jsonl @train.py",
        "run --findings @bare @train.py",
        "run --fill zeros @train.py",
        "run -n 4 --rank 0 --schedule random @train.py",
        "run -n 4 --rank 0 --on gloo @train.py",
        "run -n 4 --rank 0 --clock virtual @train.py",
        "run --clock fast @train.py",
        "run --on gloo --clock virtual @train.py",
        "run --on gloo --pdb @train.py",
        "run --record DIR @train.py",
    ];
    let told: Vec<String> = lines.iter().map(|line| files.told(line)).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_real_launch_is_refused_unless_allowed() {
    let files = Files::new();
    let torchrun = [("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")];
    let error = files.parse_in("run -n 8 @train.py", &torchrun).expect_err("one of four processes");
    insta::assert_snapshot!(format!("{error}\nhint: {}", error.hint()));
    assert!(matches!(files.parse_in("run -n 8 --allow-launcher @train.py", &torchrun), Ok(Parsed::Run(_))));
}

fn help(words: &[&str]) -> String {
    let mut root = command().term_width(100);
    root.build();
    let chosen = words.iter().fold(&mut root, |at, word| at.find_subcommand_mut(word).expect("a command of ours"));
    chosen.render_long_help().to_string()
}

#[test]
fn help_texts() {
    insta::assert_snapshot!("help", help(&[]));
    insta::assert_snapshot!("help_run", help(&["run"]));
    assert!(
        matches!(Files::new().parse_in("run --help", &[]), Ok(Parsed::Text { plain, .. }) if plain.contains("--rank"))
    );
    assert!(
        matches!(Files::new().parse_in("--version", &[]), Ok(Parsed::Text { plain, .. }) if plain.starts_with("allranks "))
    );
}
