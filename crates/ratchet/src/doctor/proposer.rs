//! Who proposes, and whether their keys are there.

use std::path::Path;

use super::{Check, fail, pass};
use crate::{
    config::{Llm, ProposerKind, Task},
    exec::{StopFlag, is_there},
    git::Repo,
    hire,
    material::sources,
};
use prepare::profile::Profile;

/// How many knobs the committed files mark.
fn knobs(root: &Path, task: &Task) -> Result<usize, String> {
    let read = || {
        let repo = Repo::open(root)?;
        sources(&repo, task, repo.head()?)
    };
    let files = read().map_err(|error| error.to_string())?;
    // a line that differs by profile names all of them
    let profile = task.has_profiles().then(|| Profile::Laptop.name());
    crate::proposer::knobs::count(&files, profile)
}

pub(super) fn proposer(root: &Path, task: &Task) -> Check {
    if let (ProposerKind::Llm, Some(llm)) = (task.proposer.kind, &task.proposer.llm) {
        return pass("proposer", format!("llm: {} of {}", llm.model, llm.provider.as_str()));
    }
    match (task.proposer.kind, &task.proposer.agent) {
        (ProposerKind::Agent, Some(agent)) => {
            let program = agent.program();
            if is_there(root, program) {
                pass("proposer", format!("agent {program}"))
            } else {
                fail(
                    "proposer",
                    format!("the agent's command {program} is not installed"),
                    "install it, or use --proposer knobs",
                )
            }
        }
        _ => match knobs(root, task) {
            Ok(0) => fail(
                "proposer",
                "knobs: no editable file marks one",
                "write for example `// knob: log 0.005..0.2` behind a value, or use an agent",
            ),
            Ok(knobs) => pass("proposer", format!("knobs: the built-in search, offline; marked: {knobs}")),
            Err(problem) => fail("proposer", problem, "correct the marker"),
        },
    }
}

/// The keys that a run will ask for; nothing is sent, and no key is shown.
pub(super) fn keys(task: &Task) -> Check {
    match (task.proposer.kind, &task.proposer.llm) {
        (ProposerKind::Llm, Some(llm)) => model_key(llm),
        (ProposerKind::Agent, _) => {
            pass("keys", "the agent finds its own, in its settings or your environment")
        }
        _ => pass("keys", "none needed"),
    }
}

fn model_key(llm: &Llm) -> Check {
    let place = llm.key_file.as_ref().or(llm.key_variable.as_ref()).cloned();
    match hire::answerer(llm, &StopFlag::default()) {
        Ok(_) => pass(
            "keys",
            place.map_or("the provider's own, or none".to_owned(), |place| format!("in {place}")),
        ),
        Err(error) => fail("keys", error.to_string(), "or use --proposer knobs"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::super::Health;
    use super::*;

    #[test]
    fn a_key_that_is_not_there_or_that_others_can_read_fails() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let llm = |more: &str| {
            toml::from_str::<Llm>(&format!("provider = \"openai\"\nmodel = \"m\"\n{more}")).unwrap()
        };
        let of_file = llm(&format!("key_file = {:?}", file.to_str().unwrap()));
        assert_eq!(model_key(&of_file).state, Health::Fail);
        fs::write(&file, "sk-a-key-of-doctors-test").unwrap();
        for (mode, state) in [(0o644, Health::Fail), (0o600, Health::Pass)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let check = model_key(&of_file);
            assert!(check.state == state && !format!("{check:?}").contains("sk-a-key"), "{check:?}");
        }
        assert_eq!(model_key(&llm("key_variable = \"NO_SUCH_VARIABLE_OF_OURS\"")).state, Health::Fail);
    }
}
