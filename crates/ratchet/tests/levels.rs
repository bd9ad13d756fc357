//! Levels 1.5 and 2 from outside: the real binary on the simulated task, asking a local server.
//!
//! The server proposes as the stubborn script does; what is asked about the search itself, each test answers.

mod research;
mod settings;

use std::path::Path;

use llm::{Call, Model, Turn};
use ratchet::{
    proposer::scripted::Scripted,
    sim::{SIGMA, Sim},
};
use serde_json::Value;
use standin::{Protocol, Request, Server};

use crate::toy::Toy;

/// The simulated task on a landscape, proposed to by the model at `server`; `search` is the section of that name.
fn sim(landscape: u64, server: &Server, search: &str) -> Toy {
    let toy = Toy::no_repository();
    let ratchet = Path::new(env!("CARGO_BIN_EXE_ratchet"));
    Sim { landscape, sigma: SIGMA, dice: 0, ratchet }.write(toy.root()).unwrap();
    let url = server.url(Protocol::OpenaiChat);
    let model = format!("provider = \"openai\"\nbase_url = \"{url}\"\nretries = 0");
    let task = toy.read("ratchet.toml").replace("provider = \"scripted\"", &model);
    assert!(task.contains(&url), "{task}");
    toy.write("ratchet.toml", &format!("{task}\n[search]\n{search}\n"));
    toy.git(&["config", "user.name", "sim"]);
    toy.git(&["config", "user.email", "sim@example.invalid"]);
    toy.commit("another model");
    toy.env("OPENAI_API_KEY", KEY)
}

/// The key that the task has in its environment.
const KEY: &str = "sk-test-0123456789abcdef";

/// What the stubborn script says to a call of a proposal; `None` for a call about the search.
fn proposal(request: &Request) -> Option<String> {
    let asks = |heading: &str| request.last_user().contains(heading);
    let purpose = match () {
        () if asks("# Now: the plan") => "plan",
        () if asks("# Now: the edit") => "edit",
        () => return None,
    };
    let turn = |message: &standin::Message| match message.role.as_str() {
        "assistant" => Turn::Assistant(message.text.clone()),
        _ => Turn::User(message.text.clone()),
    };
    let turns: Vec<Turn> = request.messages.iter().map(turn).collect();
    let call =
        Call { purpose, system: &request.system, turns: &turns, schema: None, max_output_tokens: 1_000 };
    Some(Scripted::new(&request.model).ask(&call).unwrap().text)
}

/// The strings of a JSON array; of nothing, none.
fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
