//! The guide pages name whatever a user can meet.

use std::path::Path;

use allranks_cli::command;
use allranks_core::FindingId;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("the page is part of the repository")
}

#[test]
fn every_option_is_in_the_reference() {
    let (page, mut root) = (page("command-line.md"), command());
    root.build();
    let run = root.find_subcommand("run").expect("a command of ours");
    for option in run.get_arguments().filter(|arg| !arg.is_positional() && arg.get_id() != "help") {
        let long = option.get_long().map(|name| format!("--{name}"));
        let short = option.get_short().map(|letter| format!("-{letter}"));
        let name = long.or(short).expect("an option has a name");
        let value = option.get_possible_values();
        let values: Vec<&str> = value.iter().map(|value| value.get_name()).collect();
        let shown = if values.len() > 1 { format!("{name} {}", values.join("\\|")) } else { name };
        assert!(page.contains(&format!("`{shown}")), "`{shown}` is missing in docs/command-line.md");
    }
}

#[test]
fn every_finding_is_in_the_catalogue() {
    let page = page("findings.md");
    for id in FindingId::ALL {
        assert!(page.contains(&format!("`{id}`")), "`{id}` is missing in docs/findings.md");
    }
}
