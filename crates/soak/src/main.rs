//! `soak`: runs random programs on both sides. See the library's documentation, and CONTRIBUTING.md.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for developers that prints what it finds")]

mod arguments;
mod soak;

use std::io::Write;
use std::process::ExitCode;

use allranks_soak::{generate, script};

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("soak: {error}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    let done = match arguments.command {
        Command::Run => soak::run(&arguments),
        Command::Show => {
            print!("{}", script(&generate(arguments.seed), &format!("soak show --seed {}", arguments.seed)));
            Ok(true)
        }
        Command::Generate => generated(&arguments).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints programs as JSON, one a line.
fn generated(arguments: &Arguments) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for seed in arguments.seeds() {
        writeln!(out, "{}", serde_json::to_string(&generate(seed))?)?;
    }
    Ok(())
}
