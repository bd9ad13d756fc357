//! What trials, builds and agents can reach with `mode = "auto"`; the oracle is what shell tools manage to do.
#![cfg(target_os = "linux")]

use sandbox::{Available, available};

use crate::toy::Toy;

/// The toy with a sandbox, a score and whatever else a test wants; `None` where there is none to test.
fn confined(score: &str, more: &str) -> Option<Toy> {
    if let Available::Nothing(why) = available() {
        eprintln!("skipped: {why}");
        return None;
    }
    let toy = Toy::with(|task| {
        task.replace("mode = \"off\"", "mode = \"required\"").replace(", \"{root}\"", "") + more
    });
    toy.write("score.sh", score);
    toy.commit("a score of its own");
    Some(toy)
}

/// Prints a loss of 1 for each line of the script that could be done, so that 0 is a perfect sandbox.
fn counting(acts: &[&str]) -> String {
    let mut script = String::from("n=0\n");
    for act in acts {
        script.push_str(&format!(
            "if ({act}) >/dev/null 2>&1; then n=$((n + 1)); echo 'done: {}' >&2; fi\n",
            act.replace('\'', "")
        ));
    }
    script + "echo \"{\\\"loss\\\": $n}\"\n"
}

#[test]
fn doctor_tries_what_a_trial_would_and_finds_nothing_within_reach() {
    let Some(toy) =
        confined("echo '{\"loss\": 1}'\n", "hide = [\"secret.txt\", \"folder\", \"folder/more\"]\n")
    else {
        return;
    };
    toy.write("secret.txt", "the answers");
    toy.write("folder/more/a.txt", "more of them");
    toy.commit("something hidden");
    // a run leaves .ratchet and results.tsv, so that each act has its object
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    let denied = ["denied: read .git, read .ratchet, read the parent's environment, write ratchet.toml"];
    toy.exits(0, &["doctor"]).says(&denied).says(&["read the home directory, read what is hidden\n"]);
    // a home that nobody names opens nothing; `/bin` on the path does not stand for all of `/`
    for home in ["", "somewhere"] {
        let toy = toy.copy().env("HOME", home);
        let ran = toy.ratchet(&["doctor"]);
        ran.says(&denied);
    }
}

#[test]
fn a_trial_reads_its_worktree_and_nothing_else_of_the_users() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("key"), "secret").unwrap();
    let out = outside.path().display().to_string();
    let forbidden = [
        format!("cat {out}/key"),
        format!("ls {out}"),
        format!("touch {out}/new"),
        "ls \"$HOME\"".to_owned(),
        "ls ../../..".to_owned(),
        "cat ../journal.jsonl".to_owned(),
        "cat ../trials/0001/env.json".to_owned(),
        "echo x > score.sh".to_owned(),
        "echo x > new".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "cat /proc/self/mem".to_owned(),
        "cat secret.txt".to_owned(),
    ];
    let acts: Vec<&str> = forbidden.iter().map(String::as_str).collect();
    let Some(toy) = confined(&counting(&acts), "hide = [\"secret.txt\"]\n") else { return };
    toy.write("secret.txt", "the answers");
    toy.commit("something hidden");
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    let log = toy.read(".ratchet/tags/bar/trials/0001/run.log");
    assert_eq!(toy.column("loss"), ["0.000000"], "{log}");

    let allowed = counting(&["cat cand/x.txt", "ls", "echo x > \"$TMPDIR/a\"", "sh -c true"]);
    let toy = confined(&allowed, "").unwrap();
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["4.000000"]);
}

#[test]
fn a_build_has_no_network_and_cannot_change_what_judges_it() {
    let build = "[build]\ncommand = [\"sh\", \"build.sh\"]\n";
    let Some(toy) = confined("echo \"{\\\"loss\\\": $(cat built)}\"\n", "") else { return };
    let text = toy.read("ratchet.toml").replace("[score]", &format!("{build}[score]"));
    toy.write("ratchet.toml", &text);
    toy.write(
        "build.sh",
        "n=0\nls \"$HOME\" 2>/dev/null && n=1\ncat ../journal.jsonl 2>/dev/null && n=1\necho $n > built\n\
         echo 'echo {\\\"loss\\\": -9}' > score.sh\n",
    );
    toy.commit("a build that edits the referee");
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["0.000000"]);
}

#[test]
fn an_agent_writes_where_a_candidate_may_differ_and_nowhere_else() {
    let agent = "[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n";
    let score = "echo \"{\\\"loss\\\": $(sed 's/^x = //' cand/x.txt | cut -d' ' -f 1)}\"\n";
    let Some(toy) = confined(score, &format!("hide = [\"secret.txt\"]\n{agent}")) else { return };
    toy.write("secret.txt", "the answers");
    toy.write(
        "agent.sh",
        "cat > /dev/null\nn=0\n\
         for act in 'cat secret.txt' 'echo 1 > score.sh' 'echo 1 > new' 'cat ../journal.jsonl' 'ls ../../trials' 'ls \"$HOME\"' \
           'cat /proc/$PPID/environ' 'cat /proc/$PPID/maps' 'ls /proc/$PPID/fd/'; do\n\
         if (eval \"$act\") 2>/dev/null >/dev/null; then n=$((n + 1)); fi\ndone\n\
         echo \"x = $n\" > cand/x.txt\necho '{\"description\": \"counted\"}' > proposal.json\n",
    );
    toy.commit("an agent that tries");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["10.000000", "0.000000"]);
    assert_eq!(toy.column("description")[1], "counted");
}

#[test]
fn a_preset_works_where_it_is_confined_and_may_look_at_itself() {
    // the stand-in of codex refuses to work without its own sandbox unless it finds itself in another
    let agent = "[proposer]\nkind = \"agent\"\n[proposer.agent]\npreset = \"codex\"\n";
    let Some(toy) =
        confined("echo \"{\\\"loss\\\": $(sed 's/^x = //' cand/x.txt | cut -d' ' -f 1)}\"\n", agent)
    else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let path = crate::agents::path_with(&crate::agents::stand_ins());
    let toy = toy.env("PATH", &path).env("HOME", home.path().to_str().unwrap());
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["10.000000", "9.000000"]);
    assert!(home.path().join(".codex").is_dir(), "it could not have made its folder itself");
}

#[test]
fn a_trial_that_takes_too_much_is_ended_and_the_next_one_runs() {
    let Some(toy) = confined("", "memory_gb = 0.2\ndisk_gb = 0.02\n") else { return };
    let score = "case $(sed 's/^x = //' cand/x.txt | cut -d' ' -f 1) in\n\
        1) exec awk 'BEGIN { for (i = 0; i < 1e9; i++) a[i] = \"a string that takes memory\" i }' ;;\n\
        2) exec dd if=/dev/zero of=\"$TMPDIR/big\" bs=1M count=4096 ;;\n\
        3) for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=\"$TMPDIR/$i\" bs=1M count=15; done; sleep 60 ;;\n\
        *) echo '{\"loss\": 1}' ;;\nesac\n";
    toy.write("score.sh", score);
    toy.commit("a glutton");
    let outcome = |x: &str| {
        toy.set(x);
        toy.exits(0, &["try", "-m", x, "--tag", "bar"]);
        toy.column("outcome").pop().unwrap()
    };
    assert_eq!(["1", "2", "3", "4"].map(outcome), ["out_of_memory", "out_of_disk", "out_of_disk", "worse"]);
}

#[test]
fn a_key_in_the_drivers_environment_reaches_no_file() {
    const KEY: &str = "sk-test-0123456789abcdefghij";
    let agent = "[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n";
    let Some(toy) = confined("env >&2; echo '{\"loss\": 1}'\n", agent) else { return };
    toy.write(
        "agent.sh",
        "cat > /dev/null; echo \"my key is $TEST_API_KEY\"; echo \"{\\\"description\\\": \\\"key $TEST_API_KEY\\\"}\" > proposal.json\n\
         echo \"x = $$ # $(date +%N)\" > cand/x.txt\n\
         if [ ! -e \"$CLAUDE_NOTES/once\" ]; then echo \"# $TEST_API_KEY\" >> cand/x.txt; touch \"$CLAUDE_NOTES/once\"; fi\n",
    );
    let notes = tempfile::tempdir().unwrap();
    let text = toy.read("ratchet.toml").replace(
        "command = [\"sh\", \"agent.sh\"]",
        &format!("command = [\"sh\", \"agent.sh\"]\nsettings = [\"{}\"]", notes.path().display()),
    );
    toy.write("ratchet.toml", &text);
    toy.commit("an agent that tells");
    let toy = toy.env("TEST_API_KEY", KEY).env("CLAUDE_NOTES", notes.path().to_str().unwrap());
    let run = toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert!(
        run.stderr.contains("TEST_API_KEY"),
        "the first candidate is refused, and says why: {}",
        run.stderr
    );
    assert_eq!(toy.column("description")[1], "key [TEST_API_KEY]");
    let grep = std::process::Command::new("grep").args(["-rlF", KEY]).arg(toy.root()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "files that hold the key");
}

#[test]
fn an_agents_pipes_and_links_hold_up_no_trial_and_lead_the_driver_nowhere() {
    let agent = "[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n";
    let score = "echo \"{\\\"loss\\\": $(cat n.txt)}\"\n";
    let Some(toy) = confined(score, agent) else { return };
    let task = toy.read("ratchet.toml");
    toy.write("ratchet.toml", &task.replace("cand/**", "*.txt")); // so the agent owns the whole worktree
    toy.write("n.txt", "9\n");
    toy.write(
        "agent.sh",
        "cat > /dev/null; n=$(($(cat n.txt) - 1)); rm -f program.md proposal.json .git\n\
         case $n in 8) mkfifo program.md proposal.json .git ;; 7) mkdir program.md proposal.json .git ;;\n\
         *) for name in program.md proposal.json .git; do ln -s ../../../outside $name; done ;; esac\n\
         echo $n > n.txt\n",
    );
    toy.commit("an agent that lays traps");
    toy.exits(0, &["run", "--trials", "5", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["9.000000", "8.000000", "7.000000", "6.000000", "5.000000"]);
    assert!(!toy.path(".ratchet/outside").exists() && !toy.path("outside").exists());
}

#[test]
fn a_builds_links_lead_the_driver_nowhere() {
    let build = "[build]\ncommand = [\"sh\", \"build.sh\"]\n";
    let Some(toy) = confined("echo '{\"loss\": 1}'", build) else { return };
    toy.write("sub/file", "of the commit");
    toy.write(
        "build.sh",
        "rm -r score.sh program.md sub\nln -s ../../../outside score.sh\nmkfifo program.md\n\
         ln -s ../../../folder sub\n",
    );
    toy.commit("a build that lays traps");
    toy.exits(0, &["init", "--tag", "bar"]);
    std::fs::create_dir(toy.path(".ratchet/folder")).unwrap();
    toy.exits(0, &["run", "--trials", "1"]);
    assert!(!toy.path(".ratchet/outside").exists() && !toy.path(".ratchet/folder/file").exists());
}

#[test]
fn what_a_trial_closes_nests_or_leaves_in_its_folder_does_not_stop_the_next() {
    let score = r#"cd "$1"; mkdir -p closed/below deep; mkfifo pipe
        (cd deep; name=$(printf %0200d 0); while mkdir $name && cd $name; do :; done)
        chmod 0 closed/below; chmod 0 closed "$TMPDIR" .; echo '{"loss": 1}'"#;
    let Some(toy) = confined(score, "") else { return };
    toy.write(
        "ratchet.toml",
        &toy.read("ratchet.toml").replace("[\"sh\", \"score.sh\"]", "[\"sh\", \"score.sh\", \"{trial}\"]"),
    );
    toy.commit("its own folder");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    let model = toy.path(".ratchet/tags/bar/models/0001/out");
    assert!(model.join("closed/below").is_dir() && model.join("deep").is_dir());
    assert!(!model.join("pipe").exists());
}

#[test]
fn neither_an_agent_nor_a_trial_can_forge_a_review() {
    let agent = "[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n";
    let review = "ROOT/.ratchet/tags/bar/reviews.jsonl";
    let forge = format!(
        "for act in 'cat {review}' 'echo forged >> {review}' 'echo forged > ROOT/.ratchet/tags/bar/reviews.new' \
         'mv {review} ROOT/.ratchet/tags/bar/other' 'rm {review}' 'BINARY -C ROOT review 2 --accept' \
         'mkdir ROOT/.ratchet/tags/bar/accepted' 'echo forged > ../reviews.jsonl' 'git branch accepted/bar'; do\n\
         if (eval \"$act\") >/dev/null 2>&1; then n=$((n + 1)); echo \"done: $act\" >&2; fi\ndone\n"
    );
    let score = format!(
        "n=0\n{forge}x=$(sed 's/^x = //' cand/x.txt | cut -d' ' -f 1)\necho \"{{\\\"loss\\\": $((x + 100 * n))}}\"\n"
    );
    let Some(toy) = confined(&score, agent) else { return };
    let here = |text: &str| {
        text.replace("ROOT", &toy.root().to_str().unwrap().replace(' ', "\\ "))
            .replace("BINARY", env!("CARGO_BIN_EXE_ratchet"))
    };
    toy.write("score.sh", &here(&score));
    toy.write(
        "agent.sh",
        &here(&format!("cat > /dev/null\nn=0\n{forge}x=$(sed 's/^x = //' cand/x.txt | cut -d' ' -f 1)\necho \"x = $((x - 1 + n))\" > cand/x.txt\n")),
    );
    toy.commit("an agent that reviews itself");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    toy.exits(0, &["review", "2", "--reject", "--note", "mine"]);
    let mine = toy.read(".ratchet/tags/bar/reviews.jsonl");
    toy.exits(0, &["run", "--trials", "2"]);
    let losses = ["10.000000", "9.000000", "8.000000", "7.000000"];
    assert_eq!(toy.column("loss"), losses, "{}", toy.read(".ratchet/tags/bar/trials/0003/run.log"));
    assert_eq!(toy.read(".ratchet/tags/bar/reviews.jsonl"), mine);
    assert!(!toy.path(".ratchet/tags/bar/accepted").exists());
    assert!(!toy.git(&["for-each-ref"]).contains("accepted"));
    // and what the person decided and said is in nothing that a proposer is told
    let told = toy.exits(0, &["brief"]).stdout;
    let prompt = toy.read(".ratchet/tags/bar/trials/0003/prompt.md");
    for text in [told, prompt] {
        assert!(!text.contains("mine") && !text.contains("rejected"), "{text}");
    }
}
