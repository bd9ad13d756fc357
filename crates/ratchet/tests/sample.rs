//! `ratchet sample` from outside, on a task whose text a script writes. `.ci/night` has a real model write.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use crate::toy::Toy;

/// A toy that writes text with this script, and has a champion.
fn writes(script: &str) -> Toy {
    let toy = Toy::with(|task| {
        let ours = "[sample]\ncommand = [\"sh\", \"write.sh\", \"{trial}\"]\ntimeout_s = 20\n\n[accept]";
        task.replace("[accept]", ours)
    });
    toy.write("write.sh", script);
    toy.commit("a writer");
    let toy = toy.init();
    toy.attempt("6");
    toy
}

#[test]
fn a_text_is_what_the_command_makes_of_prompt_and_arguments() {
    let toy = writes("cat; shift; echo; echo \"$@\"");
    let asked = ["sample", "--prompt", "-a {root} 'b'", "--tokens", "7", "--top-k", "3", "--seed", "9"];
    let text = toy.exits(0, &asked).stdout;
    assert_eq!(text, "-a {root} 'b'\n--tokens 7 --temperature 0.8 --seed 9 --top-k 3\n");
    let text = toy.exits(0, &["sample", "--temperature", "0", "--seed", "1"]).stdout;
    assert_eq!(text, "\n--tokens 200 --temperature 0 --seed 1\n");
    assert!(!toy.path(".ratchet/tags/bar/sample").exists(), "nothing stays");
    assert_eq!(toy.rows().len(), 2, "a text is no trial");
}

#[test]
fn the_champion_writes_and_on_request_another_keep() {
    let toy = writes("sed -n 1p \"$1/made.txt\"");
    for trial in [1, 2] {
        let model = format!(".ratchet/tags/bar/models/{trial:04}/out/made.txt");
        toy.write(&model, &format!("by {trial}"));
    }
    assert_eq!(toy.exits(0, &["sample"]).stdout, "by 2\n", "a last line is ended");
    assert_eq!(toy.exits(0, &["sample", "--trial", "1"]).stdout, "by 1\n");
    toy.attempt("9");
    toy.exits(2, &["sample", "--trial", "3"]).says(&["trial 3 was not kept"]);
    fs::remove_dir_all(toy.path(".ratchet/tags/bar/models/0002")).unwrap();
    toy.exits(2, &["sample"]).says(&["the model of trial 2 is no longer kept"]);
}

#[test]
fn hostile_text_steers_no_terminal_and_has_an_end() {
    let toy = writes("printf 'a\\033[2Jb\\r\\n'; head -c 100000 /dev/zero | tr '\\0' x; echo secret >&2");
    let ran = toy.exits(0, &["sample", "--tokens", "4"]);
    assert!(ran.stdout.starts_with("a\u{fffd}[2Jb\nxxx"), "{:?}", &ran.stdout[..20]);
    assert!(ran.stdout.len() <= 4 * 255 + 2 * 3, "{}", ran.stdout.len());
    assert!(!ran.stdout.contains("secret"));
}

#[test]
fn what_has_no_text_says_so_in_a_line() {
    let one_line = |ran: &crate::toy::Ran| assert_eq!(ran.stderr.trim().lines().count(), 1, "{}", ran.stderr);
    one_line(Toy::new().exits(2, &["sample"]).says(&["there is no tag"]));
    one_line(Toy::new().init().exits(2, &["sample"]).says(&["ratchet.toml", "[sample]"]));
    let old = writes("echo 'error: unrecognized subcommand' >&2; exit 2");
    one_line(old.exits(2, &["sample"]).says(&["trial 2 was built before"]));
    let broken = writes("echo 'error: no tensor wte' >&2; exit 1");
    one_line(broken.exits(1, &["sample"]).says(&["error: no tensor wte"]));
    broken.exits(2, &["sample", "--temperature", "-1"]);
    broken.exits(2, &["sample", "--top-k", "0"]);
    let empty = Toy::and("[sample]\ncommand = [\"sh\"]\n").init();
    one_line(empty.exits(2, &["sample"]).says(&["there is no champion yet"]));
}

#[test]
fn text_comes_as_it_is_written_and_ctrl_c_ends_it() {
    let toy = writes("echo begun; exec sleep 600");
    let mut child = toy.command(&["sample"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n", "before the command has ended");
    toy.exits(5, &["sample"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), rest.as_str()), (Some(0), ""));
    assert!(!toy.path(".ratchet/tags/bar/sample").exists());
}
