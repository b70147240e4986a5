//! What users see, as snapshots.

use std::time::Duration;

use allranks_core::{Bytes, CallSite, Finding, FindingId, GlobalRank, Location, OpKind, Seq, Severity, WorldSize};
use allranks_report::{
    Color, FillRule, GroupTraffic, NoSources, Scope, SourceText, Summary, render_finding, render_findings,
    to_json_line, write_findings_file,
};

const TRAIN: &str = "\
import torch
import torch.distributed as dist


def main():
    dist.init_process_group()
    x = torch.ones(4)
    if dist.get_rank() == 7:
        dist.barrier()
    else:
        dist.all_reduce(x)
";

struct Train;

impl SourceText for Train {
    fn read(&self, path: &str) -> Option<String> {
        (path == "train.py").then(|| TRAIN.to_owned())
    }
}

fn at(rank: u32, file: &str, line: u32, what: &str) -> Location {
    let site = CallSite { file: file.into(), line, function: "main".into() };
    Location { rank: GlobalRank(rank), site, what: what.into() }
}

fn kinds_differ() -> Finding {
    let mut locations: Vec<Location> = (0..7).map(|r| at(r, "train.py", 11, "all_reduce float32 (4,)")).collect();
    locations.push(at(7, "train.py", 9, "barrier"));
    Finding {
        id: FindingId::KindMismatch,
        severity: Severity::Error,
        headline: "rank 7 calls barrier where ranks 0-6 call all_reduce".into(),
        ranks: [GlobalRank(7)].into_iter().collect(),
        group: Some("default_pg".into()),
        op: Some(OpKind::AllReduce),
        seq: Some(Seq(41)),
        locations,
        hints: vec!["every member of a group must call the same collectives in the same order".into()],
        rule: "definite".into(),
    }
}

#[test]
fn a_finding_on_source_lines() {
    insta::assert_snapshot!(render_finding(&kinds_differ(), &Train, Color::Never));
}

#[test]
fn a_finding_without_sources() {
    insta::assert_snapshot!(render_finding(&kinds_differ(), &NoSources, Color::Never));
}

#[test]
fn ranks_that_meet_on_one_line_with_different_shapes() {
    let finding = Finding {
        id: FindingId::ShapeMismatch,
        headline: "shapes differ: (4,) on rank 0, (5,) on rank 1".into(),
        ranks: [GlobalRank(0), GlobalRank(1)].into_iter().collect(),
        locations: vec![
            at(0, "train.py", 11, "all_reduce float32 (4,)"),
            at(1, "train.py", 11, "all_reduce float32 (5,)"),
            at(1, "<string>", 0, "called from"),
        ],
        ..kinds_differ()
    };
    insta::assert_snapshot!(render_finding(&finding, &Train, Color::Never));
}

#[test]
fn many_places_are_cut() {
    let locations = (0..40).map(|r| at(r, "gone.py", r + 1, "recv")).collect();
    let finding = Finding { locations, severity: Severity::Warning, seq: None, op: None, ..kinds_differ() };
    insta::assert_snapshot!(render_finding(&finding, &Train, Color::Never));
}

#[test]
fn several_findings_are_parted_by_a_blank_line() {
    let bare = Finding { locations: vec![], hints: vec![], group: None, op: None, seq: None, ..kinds_differ() };
    insta::assert_snapshot!(render_findings(&[bare.clone(), bare], &NoSources, Color::Never));
    assert_eq!(render_findings(&[], &NoSources, Color::Never), "");
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let plain = render_finding(&kinds_differ(), &Train, Color::Never);
    let colored = render_finding(&kinds_differ(), &Train, Color::Always);
    assert!(colored.contains("\u{1b}[") && !plain.contains('\u{1b}'));
    let mut stripped = String::new();
    let mut rest = colored.as_str();
    while let Some((text, escape)) = rest.split_once('\u{1b}') {
        stripped.push_str(text);
        rest = escape.split_once('m').expect("every escape here is a colour").1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn json_has_the_documented_keys() {
    let mut finding = kinds_differ();
    finding.locations.truncate(1);
    insta::assert_snapshot!(to_json_line(&finding));
}

#[test]
fn the_file_is_written_even_without_findings() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("found.jsonl");
    write_findings_file(&path, &[kinds_differ(), kinds_differ()]).expect("the folder is writable");
    assert_eq!(std::fs::read_to_string(&path).expect("just written").lines().count(), 2);
    write_findings_file(&path, &[]).expect("the folder is writable");
    assert_eq!(std::fs::read_to_string(&path).expect("just written"), "");
    let error = write_findings_file(&dir.path().join("no/such/folder"), &[]).expect_err("the folder is missing");
    assert!(error.to_string().starts_with("cannot write findings to "));
}

fn all_ranks() -> Summary {
    let group = |name: &str, size, bytes| GroupTraffic { name: name.into(), size, bytes: Bytes(bytes) };
    Summary {
        scope: Scope::AllRanks,
        world: WorldSize(4),
        elapsed: Duration::from_millis(1520),
        operations: vec![(OpKind::AllReduce, 12), (OpKind::Broadcast, 0), (OpKind::Barrier, 1)],
        groups: vec![group("tp", 2, 3 << 20), group("world", 4, 12 << 20), group("idle", 2, 0)],
        seed: 0,
        schedule: None,
        errors: 0,
        warnings: 0,
    }
}

#[test]
fn summaries() {
    let mut many = all_ranks();
    many.groups = (0..9).map(|i| GroupTraffic { name: format!("g{i}"), size: 2, bytes: Bytes(1024 << i) }).collect();
    many.schedule = Some("random".into());
    (many.seed, many.errors, many.warnings) = (7, 2, 1);
    let one = Summary {
        scope: Scope::OneRank { rank: GlobalRank(17), fill: FillRule::Uniform },
        world: WorldSize(4096),
        ..all_ranks()
    };
    let idle = Summary { operations: vec![], groups: vec![], world: WorldSize(1), ..all_ranks() };
    let lines: Vec<String> = [all_ranks(), many, one, idle].iter().map(Summary::render).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
