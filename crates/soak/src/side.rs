//! The two sides: processes that run programs, one line of JSON for each program and each answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A program may take so long on one side. The executor's own limit for gloo is shorter.
const LIMIT: Duration = Duration::from_secs(60);

/// Steps that an executor has to end in when its input is closed.
const GRACE: usize = 100;
const STEP: Duration = Duration::from_millis(30);

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All ranks in one process.
    Ours,
    /// Real processes.
    Gloo,
}

impl Which {
    /// The executor's argument.
    pub const fn name(self) -> &'static str {
        match self {
            Which::Ours => "ours",
            Which::Gloo => "gloo",
        }
    }
}

/// In which order our ranks take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// `random` or `round-robin`.
    pub schedule: &'static str,
    /// For the random one.
    pub schedule_seed: u64,
}

#[derive(Serialize)]
struct Request<'a> {
    world: u32,
    seed: u64,
    text: &'a str,
    #[serde(flatten)]
    schedule: Schedule,
}

/// What one rank noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RankReply {
    /// By step.
    pub notes: BTreeMap<usize, Vec<String>>,
    /// The exception that ended it.
    pub error: Option<String>,
}

/// What one side says of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Reply {
    /// By rank.
    pub ranks: Vec<RankReply>,
    /// What allranks found; empty on the other side.
    #[serde(default)]
    pub findings: String,
    /// Why there is nothing to compare: a process died or hung.
    #[serde(default)]
    lost: Option<String>,
}

/// A side crashed or hung.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// A running executor; started anew when it is lost.
pub struct Side {
    which: Which,
    python: PathBuf,
    script: PathBuf,
    log: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// Open until it is dropped.
    requests: Option<ChildStdin>,
    replies: Receiver<std::io::Result<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // At the end of its input it ends its own processes and itself; if it hangs, they end when it does.
        self.requests = None;
        for _ in 0..GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(STEP);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Side {
    /// A side that `python` runs, with `script`; what its processes print goes to `log`.
    pub fn new(which: Which, python: &Path, script: &Path, log: &Path) -> Self {
        Self { which, python: python.into(), script: script.into(), log: log.into(), running: None }
    }

    /// Runs a program's text.
    pub fn run(&mut self, world: u32, seed: u64, text: &str, schedule: Schedule) -> Result<Reply, Lost> {
        let result = self.ask(&Request { world, seed, text, schedule });
        if result.is_err() {
            self.running = None;
        }
        result
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, Lost> {
        let name = self.which.name();
        let lost = |what: String| Lost(format!("{name}: {what}; see {}", self.log.display()));
        if self.running.is_none() {
            self.running = Some(self.start().map_err(|error| lost(format!("cannot be started: {error}")))?);
        }
        let running = self.running.as_mut().expect("started above");
        let line = serde_json::to_string(request).expect("numbers and strings are JSON");
        let requests = running.requests.as_mut().expect("open until dropped");
        writeln!(requests, "{line}").map_err(|error| lost(format!("takes no program: {error}")))?;
        let reply = running.replies.recv_timeout(LIMIT);
        let text = match reply {
            Ok(Ok(text)) if !text.is_empty() => text,
            Ok(Err(error)) => return Err(lost(format!("cannot be read: {error}"))),
            Ok(Ok(_)) => return Err(lost("ended".to_owned())),
            Err(_) => return Err(lost(format!("no answer in {} s", LIMIT.as_secs()))),
        };
        let reply: Reply =
            serde_json::from_str(&text).map_err(|error| lost(format!("{error} in its answer {text}")))?;
        match reply.lost {
            Some(why) => Err(Lost(format!("{name}: {why}"))),
            None => Ok(reply),
        }
    }

    fn start(&self) -> std::io::Result<Running> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(&self.python)
            .arg(&self.script)
            .arg(self.which.name())
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let requests = Some(child.stdin.take().expect("piped"));
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, replies) = channel();
        std::thread::spawn(move || {
            loop {
                let mut line = String::new();
                let read = output.read_line(&mut line);
                let over = !matches!(read, Ok(n) if n > 0);
                if send.send(read.map(|_| line)).is_err() || over {
                    return;
                }
            }
        });
        Ok(Running { child, requests, replies })
    }
}
