//! A night of 500 trials on the example that ships: no leak, and quick enough.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::toy::{Running, Toy};

const TRIALS: usize = 500;

/// The example's files, with a referee that needs no interpreter to start.
fn quadratic() -> Toy {
    let toy = Toy::bare();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quadratic");
    for file in ["program.md", "ratchet.toml", "settings.toml", ".gitignore"] {
        toy.write(file, &fs::read_to_string(example.join(file)).unwrap());
    }
    let task = toy.read("ratchet.toml");
    assert!(task.contains("[\"python3\", \"referee.py\"]"));
    toy.write(
        "ratchet.toml",
        &task
            .replace("[\"python3\", \"referee.py\"]", "[\"sh\", \"referee.sh\"]")
            .replace("\"noise\"", "\"strict\""),
    );
    // The same bowl and cliff as `referee.py`, without its noise.
    toy.write(
        "referee.sh",
        r#"exec awk -F'[ =#]+' '{ s[$1] = $2 } END {
  if (s["batch"] > 512) { print "out of memory" > "/dev/stderr"; exit 1 }
  r = log(s["learning_rate"] / 0.03) - 0.5 * log(s["batch"] / 128); b = log(s["batch"] / 128)
  loss = 1 + 0.05 * r * r + 0.02 * b * b + 0.8 * (s["weight_decay"] - 0.1) ^ 2
  loss += 0.003 * (s["layers"] - 12) ^ 2 + 0.6 * (s["momentum"] - 0.85) ^ 2
  loss += s["schedule"] == "\"constant\"" ? 0.1 : s["schedule"] == "\"linear\"" ? 0.02 : 0
  printf "{\"loss\": %.12f}\n", loss }' settings.toml
"#,
    );
    toy.commit("start");
    toy
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

#[test]
fn five_hundred_trials_leave_nothing_behind() {
    let toy = quadratic();
    let begin = Instant::now();
    let mut command = toy.command(&["run", "--trials", &TRIALS.to_string(), "--tag", "bar"]);
    command.stdout(std::process::Stdio::null()).stderr(fs::File::create(toy.path(".git/night.log")).unwrap());
    let mut driver = Running(command.spawn().unwrap());
    let pid = driver.0.id();
    let mut sampled: Vec<(usize, usize, u64)> = Vec::new();
    let status = loop {
        if let Some(status) = driver.0.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(600), "slower than 50 trials a minute");
        let rows = fs::read_to_string(toy.path("results.tsv")).map_or(0, |text| text.lines().count());
        sampled.push((rows, open_files(pid), resident_kb(pid)));
        thread::sleep(Duration::from_millis(50)); // how often to look
    };
    let took = begin.elapsed();
    assert!(status.success(), "{status}: {}", toy.read(".git/night.log"));
    let rows = toy.rows();
    assert_eq!(rows.len(), TRIALS);
    println!("{:.0} trials a minute", TRIALS as f64 / took.as_secs_f64() * 60.0);

    let mut best = f64::INFINITY;
    for row in rows.iter().filter(|row| row["status"] == "keep") {
        let value: f64 = row["loss"].parse().unwrap();
        assert!(value <= best); // as printed: gains below a millionth are gains
        best = value;
    }
    assert!(best < 1.005, "the optimum is 1, the night ended at {best}");
    let crashes = rows.iter().filter(|row| row["status"] == "crash").count();
    assert!(crashes < TRIALS / 5, "{crashes} crashes: the cliff was not remembered");

    // Neither handles nor memory grow with the night, once it is under way.
    let of = |from: usize, to: usize| sampled.iter().filter(move |(rows, ..)| (from..to).contains(rows));
    let files = (of(50, 150).map(|s| s.1).max(), of(400, 600).map(|s| s.1).max());
    if let (Some(early), Some(late)) = files {
        assert!(late <= early + 8, "{early} open files became {late}");
    }
    let memory = (of(50, 150).map(|s| s.2).max(), of(400, 600).map(|s| s.2).max());
    if let (Some(early), Some(late)) = memory {
        assert!(late <= early + 64 * 1024, "{early} KiB resident became {late}");
    }
    assert!(toy.git(&["worktree", "list"]).lines().count() <= 2, "one worktree a tag");
    let kept = rows.iter().filter(|row| row["status"] == "keep").count();
    assert_eq!(toy.lineage("bar").len(), kept - 1);
    // No process of the night is left, neither its own children nor what they started.
    let here = toy.root().canonicalize().unwrap();
    let left: Vec<_> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&here)))
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "still there: {left:?}");
}

#[test]
fn the_example_runs_as_its_readme_says() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: its referee needs python3");
        return;
    }
    let toy = Toy::bare();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quadratic");
    for entry in fs::read_dir(example).unwrap() {
        let path = entry.unwrap().path();
        toy.write(path.file_name().unwrap().to_str().unwrap(), &fs::read_to_string(&path).unwrap());
    }
    toy.commit("start");
    toy.exits(0, &["run", "--trials", "12", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 12);
    let status = toy.status();
    assert!(status["best"]["value"].as_f64() < status["baseline"]["value"].as_f64(), "{status}");
    assert!(status["noise_sigma"].as_f64().is_some_and(|sigma| sigma > 0.0));
    toy.exits(0, &["sync"]);
    toy.write("settings.toml", &toy.read("settings.toml").replace("weight_decay = ", "weight_decay = 0.11"));
    toy.exits(0, &["try", "-m", "by hand", "--json"]);
}
