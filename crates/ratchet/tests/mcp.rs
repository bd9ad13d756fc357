//! `ratchet mcp` from outside: the official SDK's own client over the server's pipes.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::{Arc, Mutex},
};

use rmcp::{
    ClientHandler, ServiceError, ServiceExt,
    model::{CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotificationParam, Request},
    service::{NotificationContext, PeerRequestOptions, RoleClient, RunningService},
    transport::TokioChildProcess,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::toy::{Running, Toy, alive};

/// A client that writes down the progress it is told.
#[derive(Clone, Default)]
struct Client(Arc<Mutex<Vec<String>>>);

impl ClientHandler for Client {
    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().unwrap().push(progress.message.unwrap_or_default());
    }
}

type Service = RunningService<RoleClient, Client>;

/// Starts a server and talks to it.
fn talk<T>(toy: &Toy, act: impl AsyncFnOnce(Service) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let command = tokio::process::Command::from(toy.command(&["mcp"]));
        let service = Client::default().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
        act(service).await
    })
}

fn request(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone())
}

async fn call(
    service: &Service,
    name: &'static str,
    arguments: Value,
) -> Result<CallToolResult, ServiceError> {
    service.call_tool(request(name, arguments)).await
}

/// The text of an answer that is no error.
#[track_caller]
fn text(answer: Result<CallToolResult, ServiceError>) -> String {
    let (is_error, text) = said(answer);
    assert!(!is_error, "{text}");
    text
}

/// Whether an answer is a tool's error, and its text.
#[track_caller]
fn said(answer: Result<CallToolResult, ServiceError>) -> (bool, String) {
    let answer = answer.unwrap();
    let text = answer.content.iter().filter_map(|block| Some(block.as_text()?.text.clone())).collect();
    (answer.is_error == Some(true), text)
}

#[track_caller]
fn structured(answer: Result<CallToolResult, ServiceError>) -> Value {
    let answer = answer.unwrap();
    assert_ne!(answer.is_error, Some(true), "{answer:?}");
    answer.structured_content.unwrap()
}

#[test]
fn a_client_finds_the_tools_and_improves_the_task_with_them() {
    let toy = Toy::new();
    talk(&toy, async |service| {
        let info = service.peer_info().unwrap().clone();
        assert_eq!(info.server_info.as_ref().unwrap().name, "ratchet");
        assert!(info.instructions.as_ref().unwrap().contains("Call `brief` first"));
        let mut tools: Vec<String> =
            service.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
        tools.sort();
        assert_eq!(tools, ["brief", "read_trial", "results", "status", "try"]);

        assert_eq!(structured(call(&service, "status", json!({})).await)["trials"], 0);
        let brief = text(call(&service, "brief", json!({})).await);
        assert!(brief.contains("Lower the loss.") && brief.contains("- cand/x.txt (1 lines)"), "{brief}");
        assert!(!brief.contains("proposal.json"), "that file is for agents that the loop runs: {brief}");
        assert_eq!(structured(call(&service, "results", json!({})).await)["rows"], json!([]));

        toy.set("9");
        let verdict = structured(call(&service, "try", json!({"description": "x to 9"})).await);
        assert_eq!((&verdict["trial"], &verdict["status"]), (&json!(2), &json!("keep")), "{verdict}");
        assert_eq!((&verdict["value"], &verdict["delta"]), (&json!(37.0), &json!(-13.0)));
        let heard = service.service().0.lock().unwrap().join("\n");
        assert!(heard.contains("trial 1") && heard.contains("x to 9"), "{heard}");

        assert_eq!(structured(call(&service, "status", json!({})).await)["best"]["value"], 37.0);
        let rows = structured(call(&service, "results", json!({"last": 1})).await);
        assert_eq!(rows["rows"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&rows["rows"][0]["loss"], &rows["rows"][0]["description"]),
            (&json!(37.0), &json!("x to 9"))
        );
        let shown = text(call(&service, "read_trial", json!({"trial": 2})).await);
        assert!(shown.contains("no instructions") && shown.contains("+x = 9"), "{shown}");
        let brief = text(call(&service, "brief", json!({})).await);
        assert!(brief.contains("x to 9"), "{brief}");
        service.cancel().await.unwrap();
    });
    assert_eq!(toy.column("description"), ["baseline", "x to 9"]);
}

#[test]
fn what_cannot_be_done_is_a_tools_error_that_says_why_and_leaves_files_alone() {
    let toy = Toy::new();
    talk(&toy, async |service| {
        let (is_error, why) = said(call(&service, "read_trial", json!({"trial": 7})).await);
        assert!(is_error && why.contains("no tag"), "{why}");
        let (is_error, why) = said(call(&service, "try", json!({"description": "nothing"})).await);
        assert!(is_error && why.contains("nothing is changed"), "{why}");
        for description in ["", " \n ", "a\0b", &"x".repeat(3_000)] {
            let (is_error, why) = said(call(&service, "try", json!({"description": description})).await);
            assert!(is_error && why.contains("`description`"), "{description:?}: {why}");
        }
        toy.write("score.sh", "echo '{\"loss\": 0}'\n");
        let (is_error, why) = said(call(&service, "try", json!({"description": "a better judge"})).await);
        assert!(is_error && why.contains("score.sh"), "{why}");
        assert_eq!(toy.read("score.sh"), "echo '{\"loss\": 0}'\n");
        toy.write("score.sh", crate::toy::SCORE);

        // not what the tools take: whichever way it is refused, the server lives on
        let wrong = [
            ("read_trial", json!({"trial": -1})),
            ("read_trial", json!({"trial": "../../1"})),
            ("read_trial", json!({})),
            ("results", json!({"last": 1e99})),
            ("try", json!({"description": 3})),
            ("try", json!({"description": "x", "tag": "other"})),
            ("rm", json!({})),
        ];
        for (name, arguments) in wrong {
            let refused = match call(&service, name, arguments.clone()).await {
                Ok(answer) => answer.is_error == Some(true),
                Err(ServiceError::McpError(_)) => true,
                Err(error) => panic!("{name} {arguments}: {error}"),
            };
            assert!(refused, "{name} {arguments}");
        }

        // words that look like options, escape sequences and quotes are words
        toy.set("8");
        let hostile = "--json --tag=x; $(touch pwned) \u{1b}[2J\"'\n\tsecond";
        let verdict = structured(call(&service, "try", json!({"description": hostile})).await);
        assert_eq!(verdict["status"], "keep", "{verdict}");
        service.cancel().await.unwrap();
    });
    assert!(!toy.path("pwned").exists());
    assert_eq!(toy.column("description")[1], "--json --tag=x; $(touch pwned) '' second");
}

#[test]
fn a_second_try_is_told_of_the_lock_while_reading_goes_on() {
    let toy = Toy::new();
    talk(&toy, async |service| {
        toy.set("gate");
        let first =
            ClientRequest::CallToolRequest(Request::new(request("try", json!({"description": "slow"}))));
        let first = service.send_cancellable_request(first, PeerRequestOptions::no_options()).await.unwrap();
        until(|| toy.path("started").exists()).await;
        let (is_error, why) = said(call(&service, "try", json!({"description": "too soon"})).await);
        assert!(is_error && why.contains("lock"), "{why}");
        assert_eq!(structured(call(&service, "status", json!({})).await)["running"], true);
        toy.open_the_gate();
        let answer = serde_json::to_value(first.await_response().await.unwrap()).unwrap();
        assert_eq!(answer["structuredContent"]["status"], "keep", "{answer}");
        service.cancel().await.unwrap();
    });
}

#[test]
fn a_call_that_is_taken_back_ends_the_trial_without_a_row() {
    let toy = Toy::new();
    talk(&toy, async |service| {
        toy.set("gate");
        let slow =
            ClientRequest::CallToolRequest(Request::new(request("try", json!({"description": "slow"}))));
        let slow = service.send_cancellable_request(slow, PeerRequestOptions::no_options()).await.unwrap();
        until(|| toy.path("started").exists()).await;
        slow.cancel(None).await.unwrap();
        until(|| !alive(&toy.read("started"))).await;
        // the lock is free again once the try is over
        while structured(call(&service, "status", json!({})).await)["running"] == true {
            tokio::task::yield_now().await;
        }
        service.cancel().await.unwrap();
    });
    assert_eq!(
        (toy.x(), toy.rows().len()),
        ("gate".to_owned(), 1),
        "the edit stands; only the baseline is a row"
    );
}

/// Waits for something that another process does.
async fn until(is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60, "it never came");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A server that has been asked, by hand, for a try that waits at the gate.
fn at_the_gate(toy: &Toy) -> Running {
    toy.set("gate");
    let mut server = toy.command(&["mcp"]).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = server.stdin.as_mut().unwrap();
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "0"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "try", "arguments": {"description": "slow"}}}),
    ];
    for message in messages {
        writeln!(stdin, "{message}").unwrap();
    }
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["result"]["serverInfo"]["name"], "ratchet");
    let begin = std::time::Instant::now();
    while !fs::read_to_string(toy.path("started")).is_ok_and(|pid| pid.ends_with('\n')) {
        assert!(begin.elapsed().as_secs() < 60, "the try never began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Running(server)
}

#[test]
fn a_client_that_goes_away_or_a_signal_ends_the_trial_cleanly() {
    for by_signal in [false, true] {
        let toy = Toy::new();
        let mut server = at_the_gate(&toy);
        let stdin = server.0.stdin.take();
        if by_signal {
            kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
        } else {
            drop(stdin);
        }
        let ran = server.ended("ratchet mcp");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(!alive(&toy.read("started")), "the referee was ended before the server was");
        assert_eq!((toy.x(), toy.rows().len()), ("gate".to_owned(), 1), "the edit stands, and is no row");
        toy.set("9");
        assert_eq!(
            toy.exits(0, &["try", "-m", "on", "--json"]).json()["trial"],
            2,
            "its number is used again"
        );
    }
}
