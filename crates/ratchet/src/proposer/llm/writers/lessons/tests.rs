use super::*;

fn lesson(text: &str, trials: &[u64], confidence: f64) -> (Option<Lesson>, Vec<usize>) {
    (Lesson::learnt(text, trials.to_vec(), confidence), Vec::new())
}

fn texts(lessons: &Lessons) -> Vec<&str> {
    lessons.all.iter().map(|lesson| lesson.text.as_str()).collect()
}

#[test]
fn what_is_written_reads_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut lessons = Lessons::read(dir.path());
    lessons
        .learn(vec![lesson("odd (confidence) | text; trials", &[9, 4, 4], 0.8), lesson("b", &[3], 0.25)], 9);
    lessons.write().unwrap();
    assert_eq!(Lessons::read(dir.path()), lessons);
    assert_eq!(lessons.seen(), 9);
    let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
    assert!(text.contains("- odd (confidence) | text; trials (confidence 0.80; trials 4, 9)\n"), "{text}");
}

#[test]
fn a_persons_lines_are_kept_first_and_no_model_replaces_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), "My notes\n\n* No wider models.\n- x (confidence high)\n").unwrap();
    let mut lessons = Lessons::read(dir.path());
    lessons.learn(vec![(Lesson::learnt("wide is fine", vec![2], 0.9), vec![1, 2, 3])], 500);
    assert_eq!(
        texts(&lessons),
        ["My notes", "No wider models.", "x (confidence high)"],
        "and the other has faded"
    );
    assert!(lessons.shown(&[], 9_999).contains("- No wider models.\n"));
}

#[test]
fn a_damaged_file_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    for damage in [vec![0xff; 9], vec![b'x'; LARGEST + 1]] {
        fs::write(dir.path().join(FILE), &damage).unwrap();
        let lessons = Lessons::read(dir.path());
        assert_eq!((lessons.seen(), lessons.all.len()), (0, 0));
        assert_eq!(fs::read(dir.path().join("lessons.md.damaged")).unwrap(), damage);
        lessons.write().unwrap();
    }
    fs::write(dir.path().join(FILE), "Trials looked at: many\n- (confidence NaN; trials 1)\n-\n#\n").unwrap();
    assert_eq!(Lessons::read(dir.path()).seen(), 0);
}

#[test]
fn confidence_halves_in_forty_trials_and_what_has_faded_goes() {
    let weight = |trials| Lesson::learnt("a", vec![1, 10], 0.8).unwrap().weight(trials);
    assert_eq!([weight(10), weight(50), weight(90)], [0.8, 0.4, 0.2]);
    let dir = tempfile::tempdir().unwrap();
    let mut lessons = Lessons::read(dir.path());
    lessons.learn(vec![lesson("old", &[10], 0.8), lesson("new", &[100], 0.8)], 100);
    lessons.learn(vec![], 135);
    assert_eq!(texts(&lessons), ["new"], "0.8 · 2^(−125/40) = 0.09");
}

#[test]
fn a_contradicted_lesson_is_replaced_and_one_said_again_stands_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut lessons = Lessons::read(dir.path());
    lessons.learn(vec![lesson("wider helps", &[2], 0.6), lesson("B", &[2], 0.5)], 2);
    assert!(lessons.numbered(2).contains("1. wider helps (confidence 0.60"));
    lessons.learn(vec![(Lesson::learnt("wider hurts", vec![3], 0.7), vec![1]), lesson("b", &[3], 0.9)], 3);
    assert_eq!(texts(&lessons), ["b", "wider hurts"]);
    lessons.learn(vec![(Lesson::learnt("without evidence", vec![], 0.9), vec![1])], 4);
    assert_eq!(texts(&lessons), ["b", "wider hurts"], "what is no lesson replaces none");
}

#[test]
fn the_list_and_what_a_prompt_shows_of_it_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let mut lessons = Lessons::read(dir.path());
    let many = (0..200u64).map(|i| lesson(&format!("{i} {}", "wörter ".repeat(90)), &[i + 1], 0.9));
    lessons.learn(many.collect(), 200);
    assert_eq!(lessons.all.len(), MOST);
    assert!(lessons.all[0].text.starts_with("199 "), "the strongest stay");
    assert!(lessons.shown(&[], 9_999).len() < LISTED + 200);
    assert!(lessons.shown(&[], 800).len() < 800 + 200);
}
