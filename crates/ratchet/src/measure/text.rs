//! Text from a model: a run that measures nothing.

use super::{
    Bench, Command, Failure,
    end::{explain, failed},
};
use crate::{
    config::Step,
    error::Result,
    exec::End,
    runlog::{RunLog, Stream},
};

/// How a text ended that is no text.
pub(crate) enum NoText {
    /// The binary does not know what it was asked for.
    Unknown,
    /// The run failed, or was stopped.
    Failed(Failure),
}

impl Bench<'_> {
    /// Runs `step`, followed by `more`, on the model in the place's folder; `hear` gets what it says as it comes.
    pub(crate) fn text(
        &self,
        step: &Step,
        more: &[String],
        prompt: &str,
        hear: &mut dyn FnMut(&[u8]),
    ) -> Result<Result<(), NoText>> {
        let log_path = self.place.dir.join("run.log");
        let mut log = RunLog::create(&log_path);
        let asked = [&step.command, more].concat();
        let stdin = Some(prompt.as_bytes().to_vec());
        let command = Command { command: &asked, timeout_s: step.timeout_s, stdin };
        let policy = || self.reach().text(&step.command);
        let mut out = |stream, bytes: &[u8]| {
            if stream == Stream::Out {
                hear(bytes);
            }
        };
        let ended = self.exec(command, policy, &mut log, &mut out);
        log.close();
        let ended = ended?;
        Ok(match failed("text", &ended) {
            None => Ok(()),
            // the driver's own arguments are right: what does not know them is older
            Some(_) if ended.end == End::Exited(2) => Err(NoText::Unknown),
            Some(failure) => Err(NoText::Failed(explain(failure, &log_path))),
        })
    }
}
