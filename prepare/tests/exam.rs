//! The exchange with a scorer that may be hostile. Both ends run over real pipes.

use std::io::{self, BufReader, Write, pipe};
use std::thread;

use prepare::exam::{
    self, Answers, Event, Exam, ExamError, Header, Precision, Probes, Reason, Rejected, Scored, Verdict,
};
use prepare::profile::{BOS, Profile};
use prepare::rows::Rows;

const ROWS: usize = 600;
const CONTEXT: usize = 128;

fn rows() -> Rows {
    let row =
        |i: usize| (0..=CONTEXT).map(move |t| if t == 0 { BOS } else { ((i * 31 + t * 7) % 8188) as u16 });
    Rows::new(CONTEXT, (0..ROWS).flat_map(row).collect()).unwrap()
}

fn exam() -> Exam {
    let mut lengths = vec![2; usize::from(BOS)];
    lengths.resize(8192, 0);
    Exam::new(Profile::Smoke, rows(), lengths).unwrap()
}

fn scored(nats: Vec<f64>) -> Scored {
    Scored {
        until: nats.clone(),
        at: nats.clone(),
        nats,
        probes: Probes::default(),
        precision: Precision::Single,
        early: Vec::new(),
        batch_rows: 2,
        seconds: 0.5,
    }
}

/// Holds an exam with a scorer that is given its two pipe ends.
fn hold(
    scorer: impl FnOnce(io::PipeReader, io::PipeWriter) + Send,
) -> (Result<Verdict, ExamError>, Vec<String>) {
    let (stdin, to_scorer) = pipe().unwrap();
    let (from_scorer, stdout) = pipe().unwrap();
    let mut events = Vec::new();
    let verdict = thread::scope(|scope| {
        scope.spawn(move || scorer(stdin, stdout));
        exam().hold(to_scorer, BufReader::new(from_scorer), |event| {
            events.push(match event {
                Event::Progress { done, rows } => format!("{done}/{rows}"),
                Event::Stray(line) => format!("stray {}", &line[..line.len().min(20)]),
            });
        })
    });
    (verdict, events)
}

fn take(stdin: io::PipeReader) -> Header {
    exam::take(BufReader::new(stdin)).unwrap().0
}

#[test]
fn rows_go_over_and_figures_come_back() {
    // a figure that tells which row it is of
    let figure = |row: &[u16]| f64::from(row[1]) + f64::from(row[2]) / 3.0;
    let (verdict, events) = hold(move |stdin, stdout| {
        let (header, taken) = exam::take(BufReader::new(stdin)).unwrap();
        assert_eq!((header.rows, header.context, header.vocab), (ROWS, CONTEXT, 8192));
        let mut answers = Answers::new(header.nonce, stdout);
        answers.progress(300).unwrap();
        let sent = Scored { early: vec![7], ..scored(taken.iter().map(figure).collect()) };
        answers.finish(Verdict::Scored(sent)).unwrap();
    });
    assert_eq!(events, ["300/600"]);
    let Verdict::Scored(back) = verdict.unwrap() else { panic!("a refusal") };
    assert_eq!(
        back.nats,
        rows().iter().map(figure).collect::<Vec<f64>>(),
        "in the rows' order, to the last bit"
    );
}

#[test]
fn each_exam_sends_its_rows_in_another_order() {
    let sent = || {
        let mut sent = Vec::new();
        exam().write(&mut sent).unwrap();
        exam::take(&sent[..]).unwrap().1
    };
    let (one, other) = (sent(), sent());
    assert!(one != other && one != rows() && other != rows());
    let sorted = |rows: &Rows| {
        let mut all: Vec<Vec<u16>> = rows.iter().map(<[u16]>::to_vec).collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&one), sorted(&rows()));
}

#[test]
fn bpb_comes_from_the_drivers_own_bytes() {
    let exam = exam();
    let bytes: u64 = exam.row_bytes().iter().sum();
    assert_eq!(bytes, exam.tokens() * 2, "every target but BOS counts two bytes here");
    let bpb = exam.bpb(&scored(vec![std::f64::consts::LN_2 * bytes as f64 / ROWS as f64; ROWS])).unwrap();
    assert!((bpb.get() - 1.0).abs() < 1e-12);
}

#[test]
fn a_refusal_keeps_its_reason() {
    let refusal = Rejected { reason: Reason::NonCausal, detail: "position 7".into() };
    let sent = refusal.clone();
    let (verdict, _) = hold(move |stdin, stdout| {
        Answers::new(take(stdin).nonce, stdout).finish(Verdict::Rejected(sent)).unwrap();
    });
    assert_eq!(verdict.unwrap(), Verdict::Rejected(refusal));
}

#[test]
fn lines_without_the_nonce_count_for_nothing() {
    let (verdict, events) = hold(|stdin, mut stdout| {
        let forged = Answers::new("0".repeat(32), stdout.try_clone().unwrap());
        forged.finish(Verdict::Scored(scored(vec![1e-9; ROWS]))).unwrap();
        stdout.write_all(b"val_bpb: 0.000001\n").unwrap();
        Answers::new(take(stdin).nonce, stdout).finish(Verdict::Scored(scored(vec![700.0; ROWS]))).unwrap();
    });
    assert_eq!(verdict.unwrap(), Verdict::Scored(scored(vec![700.0; ROWS])));
    assert_eq!(events.len(), 2, "both are reported: {events:?}");
}

#[test]
fn a_scorer_that_writes_before_it_reads_does_not_block() {
    // more than a pipe holds in either direction
    let (verdict, _) = hold(|stdin, mut stdout| {
        for _ in 0..5000 {
            stdout.write_all(b"loading layer after layer of the model\n").unwrap();
        }
        Answers::new(take(stdin).nonce, stdout).finish(Verdict::Scored(scored(vec![1.0; ROWS]))).unwrap();
    });
    assert!(matches!(verdict, Ok(Verdict::Scored(_))));
}

#[test]
fn endless_output_is_cut_off() {
    for line in [&b"more\n"[..], b"a line that never ends "] {
        let (verdict, _) = hold(|stdin, mut stdout| {
            drop(stdin);
            while stdout.write_all(&line.repeat(1000)).is_ok() {}
        });
        assert!(matches!(verdict, Err(ExamError::Flood(_))), "{verdict:?}");
    }
}

#[test]
fn a_scorer_that_dies_leaves_no_figures() {
    let (verdict, _) = hold(|stdin, stdout| drop((take(stdin), stdout)));
    assert!(matches!(verdict, Err(ExamError::NoVerdict)), "{verdict:?}");
    let (verdict, _) = hold(|stdin, stdout| drop((stdin, stdout)));
    assert!(matches!(verdict, Err(ExamError::Unread(_))), "{verdict:?}");
}

#[test]
fn two_outcomes_are_none() {
    let (verdict, _) = hold(|stdin, stdout| {
        let nonce = take(stdin).nonce;
        for nats in [1.0, 2.0] {
            let answers = Answers::new(nonce.clone(), stdout.try_clone().unwrap());
            answers.finish(Verdict::Scored(scored(vec![nats; ROWS]))).unwrap();
        }
    });
    assert!(matches!(verdict, Err(ExamError::Twice)), "{verdict:?}");
}

#[test]
fn figures_that_cannot_be_true_are_errors() {
    for (nats, impossible) in
        [(vec![1.0; ROWS - 1], true), (vec![-1.0; ROWS], true), (vec![f64::NAN; ROWS], false)]
    {
        let (verdict, _) = hold(|stdin, stdout| {
            Answers::new(take(stdin).nonce, stdout).finish(Verdict::Scored(scored(nats))).unwrap();
        });
        match verdict {
            Err(ExamError::Impossible(_)) if impossible => {}
            Err(ExamError::NoVerdict) if !impossible => {} // JSON has no NaN: the line is none of ours
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_scorer_refuses_what_is_no_exam() {
    let mut sent = Vec::new();
    exam().write(&mut sent).unwrap();
    assert!(exam::take(&sent[..]).is_ok());
    let torn = [&sent[..sent.len() - 2], &sent[..100], &b""[..], b"{}\n"];
    for bytes in torn {
        let e = exam::take(bytes).unwrap_err().to_string();
        assert!(e.contains("`score` expects an exam on its standard input"), "{e}");
    }
}

#[test]
fn every_exam_has_a_nonce_of_its_own() {
    let nonce = || {
        let mut sent = Vec::new();
        exam().write(&mut sent).unwrap();
        exam::take(&sent[..]).unwrap().0.nonce
    };
    assert_ne!(nonce(), nonce());
    assert_eq!(nonce().len(), 32);
}
