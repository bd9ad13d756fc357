//! The child process: confines itself, then runs one script for its parent.

mod confine;
mod functions;
mod interpreter;
mod value;

use std::{
    io::{self, BufRead, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    thread,
};

use crate::{
    fault::{Fault, FaultKind},
    wire::{Asked, LINE_BYTES, Reply},
};
use interpreter::Interpreter;

/// Enough for the deepest calls that the limits allow, in a build without optimisation as well.
const STACK_BYTES: usize = 64 << 20;

/// Runs the child until its stdin ends. To be called by a program that [`crate::Child`] names, before anything
/// else: the process gives up files, sockets and processes for good.
pub fn serve() -> ExitCode {
    let confined = confine::confine();
    let served = confined.and_then(|before| {
        let talk = move || talk(&mut io::stdin().lock(), &mut io::stdout().lock(), before);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(talk)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the script's thread failed")))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers line by line. The limits come with the script, and hold from then on.
fn talk(input: &mut impl BufRead, output: &mut impl Write, before: confine::Before) -> io::Result<()> {
    let mut interpreter = None;
    let mut line = String::new();
    loop {
        line.clear();
        if input.take(LINE_BYTES).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let asked: Asked = serde_json::from_str(&line)?;
        let reply = catch_unwind(AssertUnwindSafe(|| answer(&mut interpreter, asked, line.len(), &before)))
            .unwrap_or_else(|_| Err(Fault::new(FaultKind::Died, "the interpreter failed")));
        let mut text = serde_json::to_vec(&reply.unwrap_or_else(Reply::Fault))?;
        text.push(b'\n');
        output.write_all(&text)?;
        output.flush()?;
    }
}

fn answer(
    interpreter: &mut Option<Interpreter>,
    asked: Asked,
    bytes: usize,
    before: &confine::Before,
) -> Result<Reply, Fault> {
    let none = || Fault::new(FaultKind::Died, "no script was started");
    match asked {
        Asked::Start { script, limits } => {
            before.limit_memory(&limits);
            before.limit_time(&limits);
            let started = interpreter.insert(Interpreter::start(&script, limits)?);
            Ok(Reply::Hooks(started.hooks()))
        }
        Asked::Call { hook, state, given, trace } => {
            let interpreter = interpreter.as_mut().ok_or_else(none)?;
            before.limit_time(interpreter.limits());
            interpreter.call(hook, state, given, trace, bytes).map(Reply::Value)
        }
        Asked::Cases => {
            let interpreter = interpreter.as_mut().ok_or_else(none)?;
            before.limit_time(interpreter.limits());
            interpreter.cases().map(Reply::Value)
        }
    }
}
