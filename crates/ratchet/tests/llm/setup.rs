//! A model that cannot be asked as it is set up: an exit code and a remedy, not a night of knobs.

use std::process::Command;

use standin::{Fault, Protocol, Reply, Server};

use super::{KEY, chat, model::proposing, toy};
use crate::toy::{Ran, Running, Toy};

fn server(reply: Reply) -> Server {
    Server::start(move |_| reply.clone()).unwrap()
}

fn run(toy: &Toy, change: impl FnOnce(&mut Command) -> &mut Command) -> Ran {
    let mut command = toy.command(&["run", "--trials", "3", "--tag", "bar"]);
    change(&mut command);
    Running(command.spawn().unwrap()).ended("ratchet run")
}

fn nothing_ran(toy: &Toy, server: &Server) {
    assert_eq!(server.requests().len(), 0);
    assert!(!toy.path("results.tsv").exists() || toy.rows().is_empty(), "no time was spent");
}

#[test]
fn a_missing_key_is_exit_4_naming_its_variable_before_anything_runs() {
    for (protocol, variable) in [
        (Protocol::OpenaiChat, "OPENAI_API_KEY"),
        (Protocol::OpenaiResponses, "OPENAI_API_KEY"),
        (Protocol::Anthropic, "ANTHROPIC_API_KEY"),
    ] {
        let server = server(Reply::Fault(Fault::Status(500)));
        let toy = toy(&server, protocol, "", "");
        let ran = run(&toy, |command| command.env_remove(variable));
        assert_eq!(ran.says(&[variable]).code, Some(4), "{}", ran.stderr);
        nothing_ran(&toy, &server);
        let ran = run(&toy, |command| command.env(variable, ""));
        assert_eq!(ran.says(&[variable, "empty"]).code, Some(4), "{}", ran.stderr);
    }
}

#[test]
fn a_key_of_another_variable_or_a_file_is_named_where_it_is_missing_and_used_where_it_is_not() {
    let server = Server::start(proposing(5..)).unwrap();
    let toy = chat(&server, "", "key_variable = \"MY_OWN_KEY\"");
    let ran = run(&toy, |command| command);
    assert_eq!(ran.says(&["MY_OWN_KEY"]).code, Some(4), "{}", ran.stderr);
    nothing_ran(&toy, &server);
    let ran = run(&toy, |command| command.env("MY_OWN_KEY", "another-key-0123456789"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(server.requests().iter().all(|request| request.key() == Some("another-key-0123456789")));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let toy = chat(&server, "", &format!("key_file = \"{}\"", file.display()));
    let ran = run(&toy, |command| command);
    assert_eq!(ran.says(&[file.to_str().unwrap()]).code, Some(4), "{}", ran.stderr);
    std::fs::write(&file, "a-key-of-a-file-0123456789\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let ran = run(&toy, |command| command);
    assert_eq!(ran.says(&["chmod 600"]).code, Some(4), "{}", ran.stderr);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ran = run(&toy, |command| command);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(server.requests().last().unwrap().key(), Some("a-key-of-a-file-0123456789"));
}

#[test]
fn a_wrong_key_is_exit_4_naming_its_variable_and_never_shown() {
    for lookahead in [true, false] {
        // the body of such an answer quotes the key
        let server = server(Reply::Fault(Fault::Status(401)));
        let toy = chat(&server, &format!("lookahead = {lookahead}"), "");
        let ran = toy.exits(4, &["run", "--trials", "3", "--tag", "bar"]);
        ran.says(&["OPENAI_API_KEY", "401"]);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(KEY));
        assert!(server.requests().len() <= 2, "not tried again: {}", server.requests().len());
        assert_eq!(toy.rows().len(), 1, "the baseline stays");
    }
}

#[test]
fn a_model_that_the_provider_does_not_know_is_exit_4_naming_it() {
    for protocol in [Protocol::OpenaiChat, Protocol::OpenaiResponses, Protocol::Anthropic] {
        let server = server(Reply::Fault(Fault::Status(404)));
        let toy = toy(&server, protocol, "", "");
        toy.exits(4, &["run", "--trials", "3", "--tag", "bar"]).says(&["model-1", "[proposer.llm]"]);
    }
}

#[test]
fn a_section_that_could_never_work_is_exit_2_naming_the_key() {
    let server = server(Reply::Fault(Fault::Status(500)));
    for (lines, word) in [
        ("max_output_tokens = 0", "max_output_tokens"),
        ("timeout_s = 0", "timeout_s"),
        ("roles = \"crowd\"", "crowd"),
        ("temprature = 1.0", "temprature"),
    ] {
        let toy = Toy::and(&format!(
            "[proposer]\nkind = \"llm\"\n[proposer.llm]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n{lines}\n",
            server.url(Protocol::OpenaiChat)
        ))
        .env("OPENAI_API_KEY", KEY);
        toy.exits(2, &["run", "--trials", "2", "--tag", "bar"]).says(&[word]);
        nothing_ran(&toy, &server);
    }
    let toy = Toy::and("[proposer]\nkind = \"llm\"\n");
    toy.exits(2, &["run", "--trials", "2", "--tag", "bar"]).says(&["[proposer.llm]"]);
    let toy =
        Toy::and("[proposer]\nkind = \"llm\"\n[proposer.llm]\nprovider = \"compatible\"\nmodel = \"m\"\n");
    toy.exits(2, &["run", "--trials", "2", "--tag", "bar"]).says(&["base URL"]);
}
