//! The only place that talks: stderr for our words, stdout for what was asked for.

use std::io::{self, IsTerminal, Write};

use allranks_core::Finding;
use allranks_report::{Color, SourceText, Summary, render_finding};

use crate::{Parsed, UsageError};

/// Says things on stderr. A closed stderr is no error: there is nobody left to tell.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    quiet: bool,
    color: Color,
}

impl Printer {
    /// A printer with a given choice of colour; see [`color_choice`].
    pub fn new(quiet: bool, color: Color) -> Self {
        Self { quiet, color }
    }

    /// A printer for this process: colour if stderr is a terminal and the environment does not object.
    pub fn for_process(quiet: bool) -> Self {
        Self::new(quiet, color_choice(io::stderr().is_terminal(), |name| std::env::var(name).ok()))
    }

    /// Whether escapes are written to stderr.
    pub fn color(&self) -> Color {
        self.color
    }

    /// A wrong command line: the error and its hint.
    pub fn usage_error(&self, error: &UsageError) {
        self.say(&self.render_error(&error.to_string(), Some(&error.hint())));
    }

    /// An error of ours that ends the run, with an optional hint.
    pub fn error(&self, message: &str, hint: Option<&str>) {
        self.say(&self.render_error(message, hint));
    }

    /// A remark that `--quiet` drops.
    pub fn note(&self, message: &str) {
        if !self.quiet {
            self.say(&format!("allranks: note: {message}"));
        }
    }

    /// A line that even `--quiet` lets through, such as the command that reproduces a failure.
    pub fn line(&self, text: &str) {
        self.say(text);
    }

    /// A finding.
    pub fn finding(&self, finding: &Finding, sources: &dyn SourceText) {
        self.say(&render_finding(finding, sources, self.color));
    }

    /// The closing line, which `--quiet` drops.
    pub fn summary(&self, summary: &Summary) {
        if !self.quiet {
            self.say(&summary.render());
        }
    }

    /// The text of `--help` or `--version`, on stdout.
    pub fn text(&self, parsed: &Parsed) {
        if let Parsed::Text { plain, styled } = parsed {
            let color = color_choice(io::stdout().is_terminal(), |name| std::env::var(name).ok());
            let text = if color == Color::Always { styled } else { plain };
            let mut out = io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// `allranks: error: ...` and, on its own line, the hint.
    pub fn render_error(&self, message: &str, hint: Option<&str>) -> String {
        let (red, cyan, off) = match self.color {
            Color::Always => ("\u{1b}[1;31m", "\u{1b}[1;36m", "\u{1b}[0m"),
            Color::Never => ("", "", ""),
        };
        let hint = hint.map(|text| format!("\n{cyan}hint{off}: {text}")).unwrap_or_default();
        format!("allranks: {red}error{off}: {message}{hint}")
    }

    fn say(&self, text: &str) {
        let mut out = io::stderr().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

/// `NO_COLOR` (not empty) wins, then `FORCE_COLOR` and `CLICOLOR_FORCE` (not empty, not 0), then whether it is a terminal.
pub fn color_choice(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> Color {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let forced = ["FORCE_COLOR", "CLICOLOR_FORCE"].into_iter().filter_map(set).any(|value| value != "0");
    let dumb = set("TERM").is_some_and(|term| term == "dumb");
    if set("NO_COLOR").is_none() && (forced || (is_terminal && !dumb)) { Color::Always } else { Color::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        let choose = |tty, env: &[(&str, &str)]| {
            let look = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            color_choice(tty, look) == Color::Always
        };
        assert!(choose(true, &[]));
        assert!(!choose(false, &[]));
        assert!(!choose(true, &[("TERM", "dumb")]));
        assert!(choose(false, &[("FORCE_COLOR", "1")]));
        assert!(!choose(false, &[("FORCE_COLOR", "0")]));
        assert!(!choose(true, &[("NO_COLOR", "1"), ("FORCE_COLOR", "1")]));
        assert!(choose(true, &[("NO_COLOR", "")]));
    }

    #[test]
    fn errors_read_the_same_without_colour() {
        let plain = Printer::new(false, Color::Never).render_error("no such script: x.py", Some("check the path"));
        assert_eq!(plain, "allranks: error: no such script: x.py\nhint: check the path");
        let colored = Printer::new(false, Color::Always).render_error("a", None);
        assert_eq!(colored, "allranks: \u{1b}[1;31merror\u{1b}[0m: a");
    }
}
