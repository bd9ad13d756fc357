//! One script in one child process, seen from its parent.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Read, Write},
    os::fd::AsFd,
    path::PathBuf,
    process::{self, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use serde_json::Value;

use crate::{
    answer,
    fault::{Fault, FaultKind, one_line},
    limits::Limits,
    view::{Change, Hook, Knob, Suggestion, Trace, Trial},
    wire::{Ask, CASES_BYTES, LINE_BYTES, Question, Reply},
};

/// How to start the child: a program that calls [`crate::serve`] and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A script at work. Dropped, its process is killed.
///
/// Every method answers within the time of its limits. Its faults are the script's, and the host goes on after
/// them, except when the process died or was killed: then each later call is [`FaultKind::Died`].
#[derive(Debug)]
pub struct Host {
    limits: Limits,
    hooks: BTreeSet<Hook>,
    process: Option<Process>,
    /// The trace that the child has.
    sent: Option<Trace>,
}

impl Host {
    /// Starts the child and parses the script.
    ///
    /// Errors: it does not parse, its constants fail, it has no hook, it is too large, or the child does not
    /// start.
    pub fn start(child: &Child, script: &str, limits: &Limits) -> Result<Self, Fault> {
        if script.len() > limits.script_bytes {
            let message = format!("a script of {} bytes; {} are allowed", script.len(), limits.script_bytes);
            return Err(Fault::new(FaultKind::Size, message));
        }
        let process = Process::start(child).map_err(|error| {
            Fault::new(FaultKind::Died, format!("{} does not start: {error}", child.program.display()))
        })?;
        let mut host =
            Self { limits: limits.clone(), hooks: BTreeSet::new(), process: Some(process), sent: None };
        match host.ask(&Ask::Start { script, limits })? {
            Reply::Hooks(hooks) => host.hooks = hooks,
            _ => return Err(host.broken()),
        }
        Ok(host)
    }

    /// The hooks that the script has.
    pub fn hooks(&self) -> &BTreeSet<Hook> {
        &self.hooks
    }

    /// Text for the next proposal; `None`: nothing to say.
    pub fn guide(&mut self, state: &Value, trace: &Trace) -> Result<Option<String>, Fault> {
        let answer = self.call(Question::Guide, state, Some(trace))?;
        answer::text(answer, &self.limits).map_err(|fault| fault.at(Hook::Guide))
    }

    /// A reason not to try a candidate; `None`: no objection.
    pub fn veto(&mut self, state: &Value, change: &Change, trace: &Trace) -> Result<Option<String>, Fault> {
        let answer = self.call(Question::Veto(change), state, Some(trace))?;
        answer::line(answer, &self.limits).map_err(|fault| fault.at(Hook::Veto))
    }

    /// The candidates' indices, the one to try first first.
    pub fn rank(&mut self, state: &Value, candidates: &[Change], trace: &Trace) -> Result<Vec<usize>, Fault> {
        let answer = self.call(Question::Rank(candidates), state, Some(trace))?;
        answer::order(answer, candidates.len()).map_err(|fault| fault.at(Hook::Rank))
    }

    /// One to three moves of these knobs, none of a frozen one, each inside its range and to another value.
    pub fn suggest(
        &mut self,
        state: &Value,
        knobs: &[Knob],
        trace: &Trace,
    ) -> Result<Option<Suggestion>, Fault> {
        let answer = self.call(Question::Suggest(knobs), state, Some(trace))?;
        answer::suggestion(answer, knobs, &self.limits).map_err(|fault| fault.at(Hook::Suggest))
    }

    /// The trial that an excursion starts from, one of those allowed; `None`: no preference.
    pub fn parent(&mut self, state: &Value, allowed: &[u64], trace: &Trace) -> Result<Option<u64>, Fault> {
        let answer = self.call(Question::Parent(allowed), state, Some(trace))?;
        answer::parent(answer, allowed).map_err(|fault| fault.at(Hook::Parent))
    }

    /// The state after a finished trial.
    pub fn record(&mut self, state: &Value, trial: &Trial) -> Result<Value, Fault> {
        let after = self.call(Question::Record(trial), state, None)?;
        answer::state(&after, &self.limits).map(|()| after).map_err(|fault| fault.at(Hook::Record))
    }

    /// The answer as the script gave it, where it is legal.
    pub(crate) fn raw(
        &mut self,
        question: Question<'_>,
        state: &Value,
        trace: Option<&Trace>,
    ) -> Result<Value, Fault> {
        let answer = self.call(question, state, trace)?;
        let raw = answer.clone();
        let limits = &self.limits;
        match question {
            Question::Guide => answer::text(answer, limits).map(drop),
            Question::Veto(_) => answer::line(answer, limits).map(drop),
            Question::Rank(candidates) => answer::order(answer, candidates.len()).map(drop),
            Question::Suggest(knobs) => answer::suggestion(answer, knobs, limits).map(drop),
            Question::Parent(allowed) => answer::parent(answer, allowed).map(drop),
            Question::Record(_) => answer::state(&answer, limits),
        }
        .map(|()| raw)
        .map_err(|fault| fault.at(question.hook()))
    }

    /// What the script's `cases` answers, unchecked.
    pub(crate) fn cases(&mut self) -> Result<Value, Fault> {
        match self.ask(&Ask::Cases)? {
            Reply::Value(cases) => Ok(cases),
            _ => Err(self.broken()),
        }
    }

    /// A hook's answer, of whatever type.
    fn call(&mut self, question: Question<'_>, state: &Value, trace: Option<&Trace>) -> Result<Value, Fault> {
        let hook = question.hook();
        if !self.hooks.contains(&hook) {
            return Err(Fault::new(FaultKind::NoHook, "the script has no such hook").at(hook));
        }
        answer::state(state, &self.limits).map_err(|fault| fault.at(hook))?;
        let news = trace.filter(|trace| self.sent.as_ref() != Some(*trace));
        let reply = self.ask(&Ask::Call { hook, state, given: question, trace: news });
        match reply.map_err(|fault| fault.at(hook))? {
            Reply::Value(answer) => {
                if let Some(trace) = news {
                    self.sent = Some(trace.clone());
                }
                Ok(answer)
            }
            _ => Err(self.broken().at(hook)),
        }
    }

    /// One exchange. Without an answer in time the process is killed.
    fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply, Fault> {
        let Some(process) = &mut self.process else {
            return Err(Fault::new(FaultKind::Died, "its process is gone"));
        };
        let mut line =
            serde_json::to_vec(ask).map_err(|error| Fault::new(FaultKind::Type, error.to_string()))?;
        line.push(b'\n');
        if line.len() as u64 > LINE_BYTES {
            return Err(Fault::new(FaultKind::Size, format!("{} bytes to hand over", line.len())));
        }
        let most = CASES_BYTES + self.limits.state_bytes;
        let exchanged = process.exchange(&line, Instant::now() + self.limits.wall, most);
        let answered = match exchanged {
            Ok(answer) => serde_json::from_slice(&answer).ok(),
            Err(Lost::Time) => {
                self.process = None;
                let message = format!("no answer after {:?}; killed", self.limits.wall);
                return Err(Fault::new(FaultKind::Time, message));
            }
            Err(Lost::Ended) => return Err(self.ended()),
        };
        match answered {
            Some(Reply::Fault(fault)) => Err(Fault { message: one_line(&fault.message), ..fault }),
            Some(reply) => Ok(reply),
            None => Err(self.broken()),
        }
    }

    /// For an answer that no child of ours gives.
    fn broken(&mut self) -> Fault {
        self.process = None;
        Fault::new(FaultKind::Died, "its process answered what is no answer; killed")
    }

    /// For a child that ended: why, as far as one can tell.
    fn ended(&mut self) -> Fault {
        let last = self.process.take().map(Process::last_words).unwrap_or_default();
        let kind = match &last {
            last if last.contains("memory allocation") => FaultKind::Memory,
            last if last.contains("overflowed its stack") => FaultKind::Depth,
            _ => FaultKind::Died,
        };
        Fault::new(kind, format!("its process ended: {}", last.trim()))
    }
}

/// A child's process and its pipes, which never block.
#[derive(Debug)]
struct Process {
    child: process::Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// Why there is no answer.
enum Lost {
    Time,
    Ended,
}

impl Process {
    fn start(child: &Child) -> io::Result<Self> {
        let mut command = Command::new(&child.program);
        // nothing of the parent's: a key in a variable would lie in the script's process
        command.args(&child.arguments).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        let process = Self { child, stdin, stdout, stderr };
        for pipe in [process.stdin.as_fd(), process.stdout.as_fd(), process.stderr.as_fd()] {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(process)
    }

    /// Writes a line and reads one, of at most so many bytes.
    fn exchange(&mut self, line: &[u8], until: Instant, most: usize) -> Result<Vec<u8>, Lost> {
        let mut rest = line;
        while !rest.is_empty() {
            match self.stdin.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if waits(&error) => wait(&self.stdin, PollFlags::OUT, until)?,
                Err(_) => return Err(Lost::Ended),
            }
        }
        let mut answer = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            match self.stdout.read(&mut part) {
                Ok(0) => return Err(Lost::Ended),
                Ok(n) => answer.extend_from_slice(&part[..n]),
                Err(error) if waits(&error) => wait(&self.stdout, PollFlags::IN, until)?,
                Err(_) => return Err(Lost::Ended),
            }
            // too long is cut off, and is then no answer
            if answer.last() == Some(&b'\n') || answer.len() > most {
                return Ok(answer);
            }
        }
    }

    /// How the process ended and what it said last, for a message.
    fn last_words(mut self) -> String {
        // its stdout is closed, so it is ending; killed all the same, lest it only closed that
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let mut said = [0; 512];
        let n = self.stderr.read(&mut said).unwrap_or(0);
        format!("{status} {}", String::from_utf8_lossy(&said[..n]))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Waits until a pipe is ready, or nothing is at its other end.
fn wait(pipe: &impl AsFd, ready: PollFlags, until: Instant) -> Result<(), Lost> {
    let left = until.saturating_duration_since(Instant::now());
    if left == Duration::ZERO {
        return Err(Lost::Time);
    }
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(pipe, ready)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(_) => Err(Lost::Ended),
    }
}
