//! Training batches. Oracle: documents that can be told apart by their first token, read back from the rows.

use std::collections::HashMap;

use candle_core::Device;
use prepare::loader::Loader;
use prepare::profile::{BOS, Profile, Spec};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fake;

const DOCUMENTS: usize = 3000;

/// Document i is `i` and then up to 60 other tokens; none is i's own.
fn marked() -> Vec<Vec<u16>> {
    let mut rng = StdRng::seed_from_u64(3);
    let mut document = |i: usize| {
        let len = rng.random_range(0..60);
        std::iter::once(i as u16).chain((0..len).map(|_| rng.random_range(4000..8000))).collect()
    };
    (0..DOCUMENTS).map(&mut document).collect()
}

fn whole() -> Spec {
    Spec { pieces: false, ..*Profile::Smoke.spec() }
}

/// The rows of a batch, of t + 1 tokens each.
fn read(loader: &mut Loader, b: usize, t: usize) -> Vec<Vec<u16>> {
    let batch = loader.next(b, t, &Device::Cpu).unwrap();
    assert_eq!((batch.x.dims(), batch.y.dims()), (&[b, t][..], &[b, t][..]));
    let (x, y) = (batch.x.to_vec2::<u32>().unwrap(), batch.y.to_vec2::<u32>().unwrap());
    let rows = x.iter().zip(&y).map(|(x, y)| {
        assert_eq!(x[1..], y[..t - 1], "targets are the inputs, one on");
        std::iter::once(x[0]).chain(y.iter().copied()).map(|id| id as u16).collect()
    });
    rows.collect()
}

/// The documents of a row, each from its BOS on.
fn documents_of(row: &[u16]) -> Vec<Vec<u16>> {
    assert_eq!(row[0], BOS, "every row starts with BOS");
    row.split(|&id| id == BOS).skip(1).map(<[u16]>::to_vec).collect()
}

#[test]
fn every_token_is_a_documents_and_what_is_cropped_is_counted() {
    let texts = marked();
    let mut loader = Loader::new(fake::token_file(&texts), &whole(), 0);
    let mut cropped = 0;
    for row in (0..20).flat_map(|_| read(&mut loader, 3, 64)) {
        for body in documents_of(&row) {
            let Some(&mark) = body.first() else {
                cropped += 1; // a document cropped to its BOS: which one cannot be seen, all have a body
                continue;
            };
            let text = &texts[usize::from(mark)];
            assert!(text.starts_with(&body), "document {mark} is cut from its end only");
            cropped += text.len() - body.len();
        }
    }
    assert!(loader.cropped_tokens() as usize >= cropped, "{} of {cropped}", loader.cropped_tokens());
    let bare = loader.cropped_tokens() as usize - cropped;
    assert!(bare <= 60 * 60, "{bare} tokens are those of documents cropped to their BOS");
}

#[test]
fn each_document_enters_once_an_epoch() {
    let mut loader = Loader::new(fake::token_file(&marked()), &whole(), 5);
    let mut seen: HashMap<u16, usize> = HashMap::new();
    let mut placed = 0;
    // shapes change all the time: that must lose no document and bring none twice
    for i in 0.. {
        for row in read(&mut loader, 1 + i % 3, 32 << (i % 3)) {
            for body in documents_of(&row) {
                placed += 1;
                if let Some(&mark) = body.first() {
                    *seen.entry(mark).or_default() += 1;
                }
            }
        }
        // of 1,000 documents in the buffer and those placed, none can be of the second epoch
        if placed < DOCUMENTS - 1000 - 20 {
            assert!(seen.values().all(|&n| n == 1), "a document came twice in an epoch");
        }
        if placed > 4 * DOCUMENTS {
            break;
        }
    }
    // all have entered at least four times, the buffer holds 1,000, and few are cropped to a mere BOS
    let missing: usize =
        (0..DOCUMENTS as u16).map(|d| 4usize.saturating_sub(*seen.get(&d).unwrap_or(&0))).sum();
    assert!(missing < 1200, "{missing} placements are missing after four epochs");
    assert!(seen.values().all(|&n| n <= 6));
    assert!((3.9..4.6).contains(&loader.epochs()), "{}", loader.epochs());
}

#[test]
fn pieces_lose_nothing_to_cropping_but_a_rows_end() {
    let texts = fake::documents(400);
    let mut loader = Loader::new(fake::token_file(&texts), Profile::Smoke.spec(), 1);
    for _ in 0..20 {
        read(&mut loader, 8, 128);
    }
    let served = 20 * 8 * 129;
    assert!(loader.cropped_tokens() < served / 4, "{} of {served}", loader.cropped_tokens());
}

#[test]
fn two_seeds_give_two_orders() {
    for spec in [whole(), Spec { ..*Profile::Smoke.spec() }] {
        let first = |seed| read(&mut Loader::new(fake::token_file(&marked()), &spec, seed), 4, 64);
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}

#[test]
fn an_empty_batch_is_an_error_not_an_empty_tensor() {
    let mut loader = Loader::new(fake::token_file(&marked()), &whole(), 0);
    for (b, t) in [(0, 8), (8, 0)] {
        assert!(loader.next(b, t, &Device::Cpu).is_err());
    }
    assert_eq!(read(&mut loader, 2, 8).len(), 2, "and costs nothing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Any shapes in any order, longer than the exam's rows too: the same seed gives the same batches.
    #[test]
    fn batches_are_a_function_of_seed_and_shapes(
        seed: u64, shapes in prop::collection::vec((1..5usize, 1..200usize), 1..12), pieces: bool,
    ) {
        let texts = fake::documents(150);
        let spec = Spec { pieces, ..whole() };
        let mut one = Loader::new(fake::token_file(&texts), &spec, seed);
        let mut two = Loader::new(fake::token_file(&texts), &spec, seed);
        for &(b, t) in &shapes {
            let rows = read(&mut one, b, t);
            prop_assert_eq!(&rows, &read(&mut two, b, t));
            prop_assert!(rows.iter().all(|row| row.len() == t + 1 && row[0] == BOS));
        }
        prop_assert_eq!(one.cropped_tokens(), two.cropped_tokens());
    }
}
