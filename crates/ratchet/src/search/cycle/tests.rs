//! A cycle against a model whose answers are given. Oracle: what it was asked, and the files.

use std::{cell::RefCell, fs, rc::Rc};

use ::llm::AskError;
use serde_json::json;

use super::{
    super::{
        fixture::{Scene, Script, names},
        settings::Strategy,
    },
    *,
};

fn answer(freeze: &[&str], guidance: &str) -> String {
    json!({"diagnosis": "K0 goes up\nand up", "strategy": "focused", "freeze": freeze, "unfreeze": [], "guidance": guidance})
        .to_string()
}

fn run(scene: &Scene, model: &mut Script) -> CycleEnd {
    cycle(&scene.ground(), &mut scene.voice(model), &scene.path("settings")).unwrap()
}

#[test]
fn an_answer_becomes_settings_and_is_stored_with_what_was_asked() {
    let scene = Scene::new();
    let mut model = Script::says([answer(&["K0", "Kx"], "lower K1")]);
    let end = run(&scene, &mut model);
    assert_eq!(end.settings.strategy, Some(Strategy::Focused));
    assert_eq!((end.settings.cycle, end.settings.frozen.contains("K0")), (1, true));
    assert_eq!((end.diagnosis.as_str(), end.fault.as_ref()), ("K0 goes up and up", None));
    assert_eq!(end.guards, ["no knob of this name: Kx"]);
    assert_eq!(end.usage, Usage { tokens: 100, usd: Some(0.5) });

    let heard = &model.heard[0];
    assert_eq!((heard.purpose.as_str(), heard.turns.len()), ("settings", 1));
    assert!(heard.system.contains("Lower the loss."));
    assert!(heard.turns[0].contains("\"plateau\": 2"), "{}", heard.turns[0]);
    assert_eq!(heard.schema.as_ref().unwrap()["type"], "object");
    assert_eq!(names(&end.folder), ["cycle.json", "settings.json", "system.md"]);
    let call = scene.json("settings/001/settings.json");
    assert_eq!(call[0]["prompt"][0]["user"], heard.turns[0]);
    assert_eq!(call[0]["answer"], answer(&["K0", "Kx"], "lower K1"));
}

#[test]
fn what_is_stored_is_what_held_then_whatever_holds_later() {
    let mut scene = Scene::new();
    let first = run(&scene, &mut Script::says([answer(&["K0"], "first")]));
    let stored = fs::read(scene.path("settings/001/cycle.json")).unwrap();
    scene.settings = first.settings.clone();
    scene.settings.frozen.insert("K7".into());
    scene.settings.guidance = Some("changed by hand".into());
    let second = run(&scene, &mut Script::says([answer(&["K1"], "second")]));
    scene.settings = second.settings;
    assert_eq!(fs::read(scene.path("settings/001/cycle.json")).unwrap(), stored);
    let cycle = scene.json("settings/001/cycle.json");
    assert_eq!(cycle["before"], serde_json::to_value(Settings::default()).unwrap());
    assert_eq!(cycle["settings"], serde_json::to_value(&first.settings).unwrap());
    assert_eq!(scene.json("settings/002/cycle.json")["before"]["frozen"], json!(["K0", "K7"]));
}

#[test]
fn an_answer_that_is_none_changes_nothing_and_is_paid_for_and_kept() {
    let mut scene = Scene::new();
    scene.settings = run(&scene, &mut Script::says([answer(&["K3"], "stay")])).settings;
    let mut model = Script::says(["I would explore.", "{\"strategy\": \"wild\"}", "{"]);
    let end = run(&scene, &mut model);
    assert!(end.fault.as_deref().is_some_and(|fault| fault.contains("unusable answer")), "{:?}", end.fault);
    assert_eq!(end.settings, Settings { cycle: 2, ..scene.settings.clone() });
    assert_eq!(end.usage, Usage { tokens: 300, usd: Some(1.5) }, "its three answers cost what they cost");
    let call = scene.json("settings/002/settings.json");
    assert_eq!(call[0]["answer"], "I would explore.");
    assert!(call[2]["prompt"][2]["user"].as_str().unwrap().contains("not valid JSON"));
    assert_eq!(scene.json("settings/002/cycle.json")["fault"], end.fault.unwrap());
}

#[test]
fn a_provider_that_is_down_and_a_cap_change_nothing() {
    for error in
        [AskError::Down("503".into()), AskError::Cap("none left".into()), AskError::Rejected("no".into())]
    {
        let scene = Scene::new();
        let mut model = Script { answers: [Err(error)].into(), ..Script::default() };
        let end = run(&scene, &mut model);
        assert_eq!((end.settings.cycle, end.settings.strategy, end.stopped), (1, None, false));
        assert!(end.fault.is_some());
        assert!(scene.path("settings/001/cycle.json").exists());
    }
}

#[test]
fn a_cycle_that_is_stopped_is_none() {
    let scene = Scene::new();
    let mut model = Script { answers: [Err(AskError::Stopped)].into(), ..Script::default() };
    let end = run(&scene, &mut model);
    assert!(end.stopped);
    assert!(!scene.path("settings/001/cycle.json").exists());
    run(&scene, &mut Script::says([answer(&[], "")]));
    assert!(scene.path("settings/002/cycle.json").exists(), "its folder stays as it was left");
}

#[test]
fn a_question_is_on_disk_before_it_is_asked() {
    let scene = Scene::new();
    let (path, seen) = (scene.path("settings/001/settings.json"), Rc::new(RefCell::new(String::new())));
    let into = Rc::clone(&seen);
    let mut model = Script::says([answer(&[], "")]);
    model.meanwhile = Some(Box::new(move |_| *into.borrow_mut() = fs::read_to_string(&path).unwrap()));
    run(&scene, &mut model);
    assert!(seen.borrow().contains("The evidence") && seen.borrow().contains("\"answer\": null"));
}

#[test]
fn a_cycle_that_cannot_be_stored_is_an_error_and_no_fault_of_the_model() {
    let scene = Scene::new();
    let folder = scene.path("settings/001");
    let mut model = Script::says([answer(&[], "")]);
    model.meanwhile = Some(Box::new(move |_| fs::remove_dir_all(&folder).unwrap()));
    let error = cycle(&scene.ground(), &mut scene.voice(&mut model), &scene.path("settings")).unwrap_err();
    assert!(error.to_string().contains("settings.json"), "{error}");

    fs::write(scene.path("file"), "").unwrap();
    let mut model = Script::default();
    assert!(cycle(&scene.ground(), &mut scene.voice(&mut model), &scene.path("file")).is_err());
    assert!(model.heard.is_empty());
}

#[test]
fn no_secret_is_told_or_kept() {
    const SECRET: &str = "kept-from-everybody-0123456789";
    crate::secrets::learn("keys/cycle", SECRET);
    let mut scene = Scene::new();
    scene.trace.trials[1].change.description = format!("prints {SECRET}");
    let text = answer(&[], SECRET);
    let mut model = Script::says([text.replace("K0 goes up", SECRET)]);
    let end = run(&scene, &mut model);
    assert!(!model.heard[0].turns[0].contains(SECRET));
    assert_eq!(end.settings.guidance.as_deref(), Some("[keys/cycle]"));
    for name in names(&end.folder) {
        assert!(!fs::read_to_string(end.folder.join(&name)).unwrap().contains(SECRET), "{name}");
    }
}

#[test]
fn a_context_too_small_for_the_evidence_is_a_fault_that_names_the_setting() {
    let mut scene = Scene::new();
    scene.context_tokens = 1_000;
    let end = run(&scene, &mut Script::default());
    assert!(end.fault.unwrap().contains("context_tokens is 1000"));
}
