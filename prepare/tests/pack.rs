//! The packer against a linear scan written from the rule's sentence, and its conservation laws.

use std::collections::HashSet;

use prepare::pack::{self, Packer, Span, Tally};
use proptest::prelude::*;

/// Documents of given body lengths as a token file: BOS is 0, body tokens count up from 1 so that each
/// token of the file but BOS is unique. Returns tokens and offsets.
fn token_file(lengths: &[u32]) -> (Vec<u16>, Vec<u64>) {
    let (mut tokens, mut docs, mut next) = (Vec::new(), vec![0], 0);
    for &len in lengths {
        tokens.push(0);
        for _ in 0..len {
            next += 1;
            tokens.push(next);
        }
        docs.push(tokens.len() as u64);
    }
    (tokens, docs)
}

fn rows<S: Iterator<Item = Span>>(packer: &mut Packer<S>) -> Vec<Vec<Span>> {
    let (mut row, mut rows) = (Vec::new(), Vec::new());
    while packer.next_row(&mut row) {
        rows.push(row.clone());
    }
    rows
}

/// The rule, literally: scan the whole buffer in order of arrival.
fn naive(source: &[Span], row_len: usize, capacity: usize) -> Vec<Vec<Span>> {
    let mut source = source.iter().copied();
    let mut buffer: Vec<Span> = Vec::new();
    let mut rows = Vec::new();
    loop {
        let (mut row, mut room) = (Vec::new(), row_len as u64);
        while room > 0 {
            while buffer.len() < capacity {
                let Some(span) = source.next() else { break };
                buffer.push(span);
            }
            let mut best: Option<usize> = None;
            for (i, span) in buffer.iter().enumerate() {
                if span.row_tokens() <= room && best.is_none_or(|b| span.len > buffer[b].len) {
                    best = Some(i);
                }
            }
            let mut shortest = 0;
            for (i, span) in buffer.iter().enumerate() {
                if span.len < buffer.get(shortest).map_or(0, |s| s.len) {
                    shortest = i;
                }
            }
            if buffer.is_empty() {
                return rows;
            }
            let mut span = buffer.remove(best.unwrap_or(shortest));
            span.len = span.len.min((room - 1) as u32);
            room -= span.row_tokens();
            row.push(span);
        }
        rows.push(row);
    }
}

/// A few short lengths, so that equals are frequent, and some that fit no row.
fn lengths() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![4 => 0u32..12, 1 => 12u32..60], 0..120)
}

proptest! {
    #[test]
    fn best_fit_equals_a_linear_scan(lengths in lengths(), row_len in 1usize..24, capacity in 1usize..20) {
        let (_, docs) = token_file(&lengths);
        let source: Vec<Span> = pack::documents(&docs).collect();
        let ours = rows(&mut Packer::with_buffer(source.iter().copied(), row_len, capacity));
        prop_assert_eq!(ours, naive(&source, row_len, capacity));
    }

    #[test]
    fn rows_are_full_start_with_bos_and_hold_each_token_once(lengths in lengths(), row_len in 1usize..24) {
        let (tokens, docs) = token_file(&lengths);
        let mut packer = Packer::with_buffer(pack::documents(&docs), row_len, 7);
        let mut seen = HashSet::new();
        for plan in rows(&mut packer) {
            let mut row = vec![u16::MAX; row_len];
            pack::write_row(&plan, &tokens, 0, &mut row);
            prop_assert_eq!(row[0], 0);
            prop_assert!(row.iter().all(|&id| id != u16::MAX && (id == 0 || seen.insert(id))));
            // within a row, only a BOS interrupts the order of a document
            prop_assert!(row.windows(2).all(|w| w[1] == 0 || w[0] == 0 || w[1] == w[0] + 1));
        }
    }

    #[test]
    fn tokens_in_are_tokens_out_cropped_and_dropped(lengths in lengths(), row_len in 1usize..24) {
        let (tokens, docs) = token_file(&lengths);
        let mut packer = Packer::with_buffer(pack::documents(&docs), row_len, 7);
        let out = rows(&mut packer).len() * row_len;
        let Tally { documents, entered, placed, cropped, dropped } = packer.tally();
        prop_assert_eq!(documents as usize, lengths.len());
        prop_assert_eq!(entered as usize, tokens.len());
        prop_assert_eq!(placed as usize, out);
        prop_assert_eq!(entered, placed + cropped + dropped);
    }

    #[test]
    fn each_document_enters_once_and_in_order(lengths in lengths(), row_len in 1usize..24) {
        let (_, docs) = token_file(&lengths);
        let source: Vec<Span> = pack::documents(&docs).collect();
        let mut entered = Vec::new();
        let mut packer = Packer::with_buffer(source.iter().copied().inspect(|s| entered.push(*s)), row_len, 7);
        rows(&mut packer);
        drop(packer);
        prop_assert_eq!(entered, source);
    }

    #[test]
    fn pieces_fit_a_row_and_lose_nothing(lengths in lengths(), row_len in 2usize..24) {
        let (tokens, docs) = token_file(&lengths);
        let cut: Vec<Span> = pack::pieces(pack::documents(&docs), row_len).collect();
        prop_assert!(cut.iter().all(|s| s.row_tokens() <= row_len as u64));
        let body = |s: &Span| tokens[s.start as usize..s.start as usize + s.len as usize].to_vec();
        let bodies: Vec<u16> = cut.iter().flat_map(body).collect();
        let all: Vec<u16> = tokens.into_iter().filter(|&id| id != 0).collect();
        prop_assert_eq!(bodies, all);
        prop_assert!(cut.len() >= lengths.len(), "an empty document is a piece too");
    }

    #[test]
    fn exam_rows_never_wrap_around(lengths in lengths(), row_len in 2usize..24, cut: bool, most in 0usize..30) {
        let (tokens, docs) = token_file(&lengths);
        let (ids, tally) = pack::exam(&tokens, &docs, row_len, cut, most, 0);
        prop_assert!(ids.len() <= most * row_len && ids.len() % row_len == 0);
        prop_assert!(ids.chunks(row_len).all(|row| row[0] == 0));
        let bodies: Vec<u16> = ids.iter().copied().filter(|&id| id != 0).collect();
        let distinct: HashSet<u16> = bodies.iter().copied().collect();
        prop_assert_eq!(distinct.len(), bodies.len(), "no token is examined twice");
        prop_assert_eq!(tally.placed as usize, ids.len());
        if ids.len() < most * row_len {
            prop_assert!((tally.dropped as usize) < row_len, "rows end only where the text ends");
        }
    }
}

#[test]
fn largest_that_fits_goes_next_and_the_shortest_is_cropped() {
    // bodies 6, 2, 2 and 9 in rows of 8: 6+BOS leaves one token, and no document fits in it
    let (_, docs) = token_file(&[6, 2, 2, 9]);
    let mut packer = Packer::new(pack::documents(&docs), 8);
    let span = |start, len| Span { start, len };
    // the first 2 is cropped to its BOS; then 2+BOS leaves five tokens for the head of 9
    assert_eq!(rows(&mut packer), [vec![span(1, 6), span(8, 0)], vec![span(11, 2), span(14, 4)]]);
    assert_eq!(packer.tally(), Tally { documents: 4, entered: 23, placed: 16, cropped: 7, dropped: 0 });
}

#[test]
fn what_is_not_yet_placed_is_buffered() {
    let (_, docs) = token_file(&[3; 10]);
    let mut packer = Packer::with_buffer(pack::documents(&docs), 4, 5);
    assert!(packer.next_row(&mut Vec::new()));
    // five entered, one was placed; the next is read only when it is needed
    assert_eq!(packer.tally(), Tally { documents: 5, entered: 20, placed: 4, cropped: 0, dropped: 0 });
}

#[test]
fn endless_sources_fill_rows_for_ever() {
    let (_, docs) = token_file(&[3, 5, 7]);
    let spans: Vec<Span> = pack::documents(&docs).collect();
    let mut packer = Packer::new(spans.into_iter().cycle(), 11);
    let mut row = Vec::new();
    assert!((0..10_000).all(|_| packer.next_row(&mut row)));
    let Tally { entered, placed, cropped, dropped, .. } = packer.tally();
    assert_eq!((placed, dropped), (110_000, 0));
    assert!(entered - placed - cropped <= 1000 * 8, "only the buffer is between in and out");
}
