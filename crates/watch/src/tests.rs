//! Pictures as text, held against stored ones that a person has looked at; every size; what each key does.

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};

use crate::{
    Action, Scene, Theme, Ui, draw,
    scene::{Counts, Gpu, Limit, Mark, Now, Standing, Status, Trial},
};

/// A night of 37 trials, in the middle of the 38th.
fn night() -> Scene {
    let trials: Vec<Trial> = (1..=37).map(trial).collect();
    let count = |status| trials.iter().filter(|trial| trial.status == status).count();
    let curve = |loss: f64, end: usize| {
        (1..=end).map(|i| i as f64 / 100.0).map(|x| (x, loss + 5.0 * (-9.0 * x).exp())).collect::<Vec<_>>()
    };
    Scene {
        task: "gpt".into(),
        metric: "val_bpb".into(),
        lower_is_better: true,
        tag: Some("2026-11-29".into()),
        place: "laptop, cpu".into(),
        clock: "02:13:45".into(),
        standing: Standing::Running,
        why: "for 1 h 12 min".into(),
        now: Some(Now {
            title: "trial 38".into(),
            description: "MATRIX_LR 0.04 -> 0.055: the matrices are far from the edge of stability".into(),
            proposer: "llm".into(),
            done: vec![("build".into(), 8.1), ("preflight".into(), 1.2)],
            doing: "fit".into(),
            spent_s: 26.0,
            about_s: Some(60.0),
            to_come: vec!["score".into()],
            left_s: Some(41.0),
            loss: Some(4.312),
            champion_loss: Some(4.4),
            steps: Some(117),
            tokens_s: Some(5123.0),
            memory_bytes: Some(1_340_000_000),
            curve: curve(3.9, 43),
            ..Now::default()
        }),
        champion_curve: curve(4.0, 100),
        best: Some(Mark { trial: 31, value: Some(1.871234) }),
        baseline: Some(Mark { trial: 1, value: Some(1.9) }),
        gain: Some(0.028766),
        counts: Counts {
            keeps: count(Status::Keep),
            discards: count(Status::Discard),
            crashes: count(Status::Crash),
        },
        trials,
        limits: vec![
            Limit { name: "trials".into(), text: "37 of 50".into(), share: Some(0.74) },
            Limit { name: "spent".into(), text: "0.52 of 2.00 USD".into(), share: Some(0.26) },
        ],
        stop: Some("07:00, in 4 h 46 min".into()),
        hints: 1,
        ..Scene::default()
    }
}

fn trial(n: u64) -> Trial {
    let status = match n {
        1 | 7 | 19 | 31 => Status::Keep,
        n if n % 9 == 5 => Status::Crash,
        _ => Status::Discard,
    };
    let drift = (n as f64 * 0.7).sin() * 0.004;
    let value = match status {
        Status::Keep => Some(1.9 - 0.00096 * (n - 1) as f64),
        Status::Discard => Some(1.9 - 0.0008 * n as f64 + 0.008 + drift),
        Status::Crash => None,
    };
    Trial {
        trial: n,
        status,
        outcome: if status == Status::Crash { "build_failed" } else { "within_noise" }.into(),
        value,
        delta: value.filter(|_| n > 1).map(|_| drift),
        seconds: 70.0 + n as f64,
        memory_gb: 1.34,
        proposer: "llm".into(),
        description: format!("idea {n}: a warm-up that is longer, and a decay that begins later"),
        ended: "01:17".into(),
    }
}

fn gpu() -> Gpu {
    Gpu {
        name: "NVIDIA H200".into(),
        busy_percent: Some(98),
        memory_bytes: Some((41_000_000_000, 150_000_000_000)),
        celsius: Some(65),
        watts: Some((612, Some(700))),
    }
}

fn terminal(scene: &Scene, ui: &mut Ui, theme: Theme, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, scene, ui, theme)).unwrap();
    terminal
}

fn picture(scene: &Scene, ui: &mut Ui, width: u16, height: u16) -> String {
    terminal(scene, ui, Theme::new(true), width, height).backend().to_string()
}

fn press(ui: &mut Ui, scene: &Scene, code: KeyCode) -> Option<Action> {
    ui.key(KeyEvent::new(code, KeyModifiers::NONE), scene)
}

#[test]
fn at_80_by_24_all_essentials_fit() {
    insta::assert_snapshot!(picture(&night(), &mut Ui::default(), 80, 24));
}

#[test]
fn at_200_by_60_the_room_is_used() {
    let scene = Scene { gpu: Some(gpu()), ..night() };
    insta::assert_snapshot!(picture(&scene, &mut Ui::default(), 200, 60));
}

#[test]
fn before_there_is_a_tag_it_says_so() {
    let scene = Scene { task: "gpt".into(), clock: "22:58:01".into(), ..Scene::default() };
    insta::assert_snapshot!(picture(&scene, &mut Ui::default(), 80, 12));
}

#[test]
fn a_finished_night_says_why_it_ended() {
    let scene = Scene {
        standing: Standing::Over,
        why: "since 07:00: it is 07:00:00".into(),
        now: None,
        limits: Vec::new(),
        stop: None,
        ..night()
    };
    insta::assert_snapshot!(picture(&scene, &mut Ui::default(), 80, 24));
}

#[test]
fn help_lies_over_the_rest() {
    let (mut ui, scene) = (Ui::default(), night());
    press(&mut ui, &scene, KeyCode::Char('?'));
    insta::assert_snapshot!(picture(&scene, &mut ui, 80, 24));
}

/// Every mode at every small size, and odd large ones, of scenes with everything, nothing, and nonsense.
#[test]
fn no_size_and_no_scene_makes_it_panic() {
    let odd = |value: f64| {
        let mut scene = night();
        let now = scene.now.as_mut().unwrap();
        (now.about_s, now.spent_s, now.loss, now.tokens_s) = (Some(value), value, Some(value), Some(value));
        now.curve = vec![(value, value), (0.5, value)];
        now.description = "\u{202e}\u{1b}[31m\0 漢字 🦀 e\u{301} ".repeat(40);
        scene.trials.iter_mut().for_each(|trial| {
            (trial.value, trial.delta, trial.seconds) = (Some(value), Some(value), value);
            trial.description.clone_from(&scene.now.as_ref().unwrap().description);
        });
        scene.gpu = Some(Gpu { busy_percent: Some(u32::MAX), memory_bytes: Some((u64::MAX, 0)), ..gpu() });
        scene.trouble = Some("the journal is damaged ".repeat(40));
        scene
    };
    let nonsense = [f64::NAN, f64::INFINITY, -1e308, 0.0].map(odd);
    let scenes =
        [night(), Scene::default(), Scene { gpu: Some(gpu()), ..night() }].into_iter().chain(nonsense);
    for scene in scenes {
        for key in ['h', '?', 's', 'x'] {
            let mut ui = Ui::default();
            press(&mut ui, &scene, KeyCode::Char(key));
            let narrow = [1, 2, 3, 5, 8, 21].into_iter();
            let small = narrow.flat_map(|width| (1..=27).step_by(2).map(move |height| (width, height)));
            for (width, height) in small.chain([(80, 24), (120, 36), (119, 35), (300, 3), (3, 100)]) {
                picture(&scene, &mut ui, width, height);
            }
        }
    }
}

#[test]
fn without_colour_there_is_none_and_with_it_only_what_is_readable_everywhere() {
    let scene = Scene { gpu: Some(gpu()), ..night() };
    let colours = |colour| {
        let terminal = terminal(&scene, &mut Ui::default(), Theme::new(colour), 200, 60);
        let cells = terminal.backend().buffer().content().to_vec();
        cells.into_iter().flat_map(|cell| [cell.fg, cell.bg]).collect::<Vec<_>>()
    };
    assert!(colours(false).iter().all(|colour| *colour == Color::Reset));
    let readable = [Color::Reset, Color::Green, Color::Red, Color::Cyan, Color::Magenta];
    let coloured = colours(true);
    assert!(coloured.iter().all(|colour| readable.contains(colour)));
    assert!(coloured.contains(&Color::Green));
}

#[test]
fn keys_ask_for_what_they_say() {
    let (mut ui, scene) = (Ui::default(), night());
    let mut press = |code| press(&mut ui, &scene, code);
    assert_eq!(press(KeyCode::Char('q')), Some(Action::Quit));
    assert_eq!(press(KeyCode::Char('p')), Some(Action::Pause));
    assert_eq!(press(KeyCode::Char('s')), None);
    assert_eq!(press(KeyCode::Char('n')), None, "any other key leaves it");
    assert_eq!(press(KeyCode::Char('s')), None);
    assert_eq!(press(KeyCode::Char('y')), Some(Action::Stop));
    assert_eq!(press(KeyCode::Char('h')), None);
    for c in "try qk".chars() {
        assert_eq!(press(KeyCode::Char(c)), None);
    }
    press(KeyCode::Backspace);
    assert_eq!(press(KeyCode::Enter), Some(Action::Hint("try q".into())));
    press(KeyCode::Char('h'));
    press(KeyCode::Char(' '));
    assert_eq!(press(KeyCode::Enter), None, "nothing is no idea");
    press(KeyCode::Char('h'));
    press(KeyCode::Char('a'));
    assert_eq!(press(KeyCode::Esc), None);
    assert_eq!(press(KeyCode::Char('q')), Some(Action::Quit));
    let paused = Scene { standing: Standing::Paused, ..night() };
    assert_eq!(super::tests::press(&mut ui, &paused, KeyCode::Char('p')), Some(Action::Resume));
    for (key, action) in [('c', Action::Quit), ('z', Action::Suspend), ('l', Action::Redraw)] {
        assert_eq!(ui.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL), &scene), Some(action));
    }
}

#[test]
fn a_key_that_does_not_apply_says_so() {
    for (standing, words) in [(Standing::Over, "no run is under way"), (Standing::Busy, "no `ratchet run`")] {
        let scene = Scene { standing, ..night() };
        for key in ['p', 's'] {
            let mut ui = Ui::default();
            assert_eq!(press(&mut ui, &scene, KeyCode::Char(key)), None);
            assert!(picture(&scene, &mut ui, 80, 24).contains(words), "{key}");
        }
    }
    let mut ui = Ui::default();
    press(&mut ui, &Scene::default(), KeyCode::Char('h'));
    assert!(picture(&Scene::default(), &mut ui, 80, 24).contains("needs a tag"));
}

#[test]
fn scrolling_reaches_every_trial_and_then_stays_where_it_is() {
    let (mut ui, mut scene) = (Ui::default(), night());
    let shows =
        |ui: &mut Ui, scene: &Scene, n: u64| picture(scene, ui, 80, 24).contains(&format!("idea {n}:"));
    assert!(shows(&mut ui, &scene, 37) && !shows(&mut ui, &scene, 20));
    for _ in 0..100 {
        press(&mut ui, &scene, KeyCode::Down);
    }
    assert!(shows(&mut ui, &scene, 1) && !shows(&mut ui, &scene, 37));
    press(&mut ui, &scene, KeyCode::PageUp);
    assert!(!shows(&mut ui, &scene, 1));
    let before = picture(&scene, &mut ui, 80, 24);
    let line = |picture: &str| picture.lines().find(|line| line.contains("idea")).map(str::to_owned);
    scene.trials.push(trial(38));
    assert_eq!(line(&picture(&scene, &mut ui, 80, 24)), line(&before), "who reads is not moved on");
    press(&mut ui, &scene, KeyCode::Home);
    assert!(shows(&mut ui, &scene, 38));
    press(&mut ui, &scene, KeyCode::End);
    assert!(shows(&mut ui, &scene, 1));
}
