//! What the driver does while a fault strikes: one command in a prepared repository, and how it should end.

use std::process::Stdio;

use super::{
    sound,
    tracer::{Watch, trace},
};
use crate::toy::Toy;

/// Scores (x − 3)² + 1 plus noise that the seed alone decides, in whole numbers, which any shell can do.
const SCORE: &str = r#"read -r _ _ x _ < cand/x.txt
case "$x" in crash) echo 'boom: no such tensor' >&2; exit 7 ;; esac
echo "{\"loss\": $(( (x - 3) * (x - 3) + 1 + RATCHET_SEED % NOISE ))}"
"#;

/// Leaves a model behind, as a fit does.
const FIT: &str = r#"read -r line < cand/x.txt; echo "$line" > "$1/model.safetensors""#;

/// One command in a prepared repository.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// The repository before it.
    pub(super) before: Toy,
    pub(super) args: Vec<&'static str>,
    /// Status and x of every trial in the end; what a `run` proposes is learnt from one that nothing strikes.
    pub(super) trials: Vec<(String, String)>,
    /// Whether every fault strikes here; elsewhere the driver is killed only.
    pub(super) thorough: bool,
}

/// Every kind of work that the driver does.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("init", repository(1), &["init", "--tag", "bar"], &[]),
        Scenario::new(
            "try: baseline and keep",
            edited(repository(1), "6"),
            TRY,
            &[("keep", "10"), ("keep", "6")],
        )
        .thorough(),
        Scenario::new(
            "try: discard of new and deleted files",
            shuffled(begun(1)),
            TRY,
            &[("keep", "10"), ("keep", "6"), ("discard", "9")],
        ),
        Scenario::learnt("run: replicates on both sides", begun(7), &["run", "--trials", "2"]),
        Scenario::learnt("run: a baseline repaired by a commit", repaired(), &["run", "--trials", "2"]),
        Scenario::new("sync of an edit", edited(begun(1), "7"), &["sync"], &[("keep", "10"), ("keep", "6")])
            .thorough(),
        Scenario::new("hint", begun(1), &["hint", "an idea"], &[("keep", "10"), ("keep", "6")]).thorough(),
        Scenario::new("review", begun(1), &["review", "2", "--accept"], &[("keep", "10"), ("keep", "6")])
            .thorough(),
        Scenario::new("accept", reviewed(), ACCEPT, &[("keep", "10"), ("keep", "6")]),
        Scenario::new("rerun", begun(1), &["rerun", "2"], &[("keep", "10"), ("keep", "6")]),
    ]
}

const ACCEPT: &[&str] = &["accept", "--runs", "1"];
pub(super) const TRY: &[&str] = &["try", "-m", "an edit", "--tag", "bar", "--json"];

impl Scenario {
    fn new(
        name: &'static str,
        before: Toy,
        args: &[&'static str],
        trials: &[(&'static str, &'static str)],
    ) -> Self {
        let trials = trials.iter().map(|(status, x)| ((*status).to_owned(), (*x).to_owned())).collect();
        Self { name, before, args: args.to_vec(), trials, thorough: false }
    }

    fn thorough(self) -> Self {
        Self { thorough: true, ..self }
    }

    /// A `run`, whose seeds decide what it proposes: the same with and without a fault.
    fn learnt(name: &'static str, before: Toy, args: &[&'static str]) -> Self {
        let free = before.copy();
        free.exits(0, args);
        free.exits(0, &["run", "--trials", "1"]); // a fault after the last trial leaves one more to come
        let trials = sound::trials(&free);
        Self { name, before, args: args.to_vec(), trials, thorough: false }
    }

    /// Starts again, as a person would.
    pub(super) fn resume(&self, toy: &Toy) {
        let done = sound::trials(toy).len();
        match self.args[0] {
            "run" => {
                let missing = (self.trials.len() - 1).saturating_sub(done).max(1);
                toy.exits(0, &["run", "--trials", &missing.to_string(), "--tag", "bar"]);
            }
            // what is done already is refused, or a tag that exists
            "try" | "init" => {
                let ran = toy.ratchet(&self.args);
                let again = if self.args[0] == "try" { 3 } else { 2 };
                let done = sound::trials(toy).len() == self.trials.len();
                assert!(
                    ran.code == Some(0) || ran.code == Some(again) && done,
                    "{:?} {}",
                    ran.code,
                    ran.stderr
                );
            }
            _ => drop(toy.exits(0, &self.args)),
        }
    }

    /// Checks that nothing is lost, once the command has been brought to its end.
    pub(super) fn check(&self, toy: &Toy) {
        if self.args[0] == "init" {
            toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]); // the tag can be used
        }
        sound::check(toy, &self.before, matches!(self.args[0], "try" | "sync"));
        let trials = sound::trials(toy);
        match self.args[0] {
            "init" => assert_eq!(trials.len(), 1),
            "run" => {
                assert!(
                    self.trials.starts_with(&trials),
                    "{trials:?}, but without a fault {:?}",
                    self.trials
                );
                assert!(trials.len() + 1 >= self.trials.len());
            }
            _ => assert_eq!(trials, self.trials),
        }
        if self.args[0] == "hint" {
            let queue = toy.exits(0, &["hint"]).stdout;
            let whole = queue.lines().all(|line| line.ends_with("  an idea"));
            assert!(
                whole && matches!(queue.lines().count(), 1 | 2),
                "queued once or, started again, twice: {queue}"
            );
        }
        if self.args[0] == "review" {
            let keeps = toy.exits(0, &["review", "--json"]).json();
            assert_eq!(keeps["keeps"][0]["decision"], "accepted");
        }
        if self.args[0] == "accept" {
            let tree = |name: &str| toy.git(&["rev-parse", &format!("{name}^{{tree}}")]);
            assert_eq!(tree("accepted/bar"), tree("ratchet/bar"));
            assert_eq!(toy.git(&["rev-parse", "accepted/bar~1"]), toy.git(&["rev-parse", "main"]));
        }
        if self.args[0] == "sync" {
            let saved = toy.git(&["for-each-ref", "--format=%(refname)", "refs/ratchet/saved"]);
            let edit = |name: &str| toy.git(&["show", &format!("{name}:cand/x.txt")]);
            assert!(saved.lines().any(|name| edit(name).starts_with("x = 7")), "the edit is saved: {saved}");
        }
    }
}

/// Runs a scenario's command under the tracer. Gives its exit code, `None` when it was killed, and what it said.
pub(super) fn run(toy: &Toy, scenario: &Scenario, watch: &mut dyn Watch) -> (Option<i32>, String) {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut command = toy.command(&scenario.args);
    command.stdout(Stdio::null()).stderr(Stdio::from(said.reopen().unwrap()));
    let code = trace(command, toy.root(), watch).unwrap();
    (code, std::fs::read_to_string(said.path()).unwrap())
}

/// The task, not begun. Noise of 1 is none; with more, close calls are replicated.
fn repository(noise: u32) -> Toy {
    let rule = if noise == 1 { "\"strict\"" } else { "\"noise\"\nsigma = 8.0" };
    let toy = Toy::bare();
    toy.write(
        "ratchet.toml",
        &format!(
            "[task]\nname = \"toy\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n\
             [fit]\ncommand = [\"sh\", \"fit.sh\", \"{{trial}}\"]\n\
             [score]\ncommand = [\"sh\", \"score.sh\"]\n[accept]\nrule = {rule}\n[sandbox]\nmode = \"off\"\n"
        ),
    );
    toy.write("score.sh", &SCORE.replace("NOISE", &noise.to_string()));
    toy.write("fit.sh", FIT);
    toy.write("program.md", "Lower the loss.\n");
    toy.write(".gitignore", ".ratchet/\n");
    toy.write("cand/old.txt", "an old file\n");
    write_x(&toy, "10");
    toy.commit("start");
    toy
}

/// With a baseline of 10 and a keep of 6.
pub(super) fn begun(noise: u32) -> Toy {
    let toy = edited(repository(noise), "6");
    toy.exits(0, TRY);
    toy
}

/// With that keep accepted.
fn reviewed() -> Toy {
    let toy = begun(1);
    toy.exits(0, &["review", "2", "--accept"]);
    toy
}

/// A tag whose baseline crashed, and the commit that repairs it.
fn repaired() -> Toy {
    let toy = edited(repository(1), "crash");
    toy.commit("broken");
    toy.exits(1, &["run", "--tag", "bar"]);
    let toy = edited(toy, "10");
    toy.git(&["commit", "-qam", "repaired"]);
    toy
}

fn edited(toy: Toy, x: &str) -> Toy {
    write_x(&toy, x);
    toy
}

/// With an edited, a new and a deleted file.
fn shuffled(toy: Toy) -> Toy {
    let toy = edited(toy, "9");
    toy.write("cand/deep/new.txt", "a new file\n");
    std::fs::remove_file(toy.path("cand/old.txt")).unwrap();
    toy
}

pub(super) fn write_x(toy: &Toy, x: &str) {
    toy.write("cand/x.txt", &format!("x = {x} # knob: int -20..20\n"));
}
