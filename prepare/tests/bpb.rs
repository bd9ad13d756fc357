//! Bits per byte. Oracle: arithmetic by hand and in f64.

use prepare::bpb::{Bpb, target_bytes};
use prepare::profile::BOS;
use prepare::rows::Rows;
use proptest::prelude::*;

#[test]
fn what_cannot_be_ranked_cannot_be_built() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0] {
        assert!(Bpb::new(value).is_err(), "{value}");
        assert!(Bpb::from_nats(&[value], 8).is_err(), "{value} nats");
    }
    assert!(Bpb::from_nats(&[1.0], 0).is_err(), "no bytes");
    assert!(serde_json::from_str::<Bpb>("0.0").is_err(), "not even from a file");
    assert_eq!(serde_json::to_string(&Bpb::new(0.9979).unwrap()).unwrap(), "0.9979");
}

#[test]
fn lower_is_less() {
    let mut values = [1.1, 0.97, 1.0].map(|v| Bpb::new(v).unwrap());
    values.sort();
    assert_eq!(values.map(Bpb::get), [0.97, 1.0, 1.1]);
}

#[test]
fn one_bit_a_byte_is_one() {
    let nats = [std::f64::consts::LN_2 * 3.0, std::f64::consts::LN_2 * 5.0];
    assert!((Bpb::from_nats(&nats, 8).unwrap().get() - 1.0).abs() < 1e-15);
}

#[test]
fn raw_bytes_count_first_tokens_and_specials_do_not() {
    // ids 0..=255 are single bytes, most of which are no text of their own; 256 is the word "the"
    let mut lengths = vec![1; 256];
    lengths.push(3);
    lengths.resize(usize::from(BOS) + 4, 0);
    let rows = Rows::new(3, vec![BOS, 0xe9, 256, BOS, BOS, 256, 256, 0x80]).unwrap();
    assert_eq!(target_bytes(&rows, &lengths), [4, 7]);
}

proptest! {
    #[test]
    fn nats_over_ln2_bytes(nats in prop::collection::vec(1e-3..1e5f64, 1..50), bytes in 1..1_000_000u64) {
        let bits = nats.iter().map(|n| n * std::f64::consts::LOG2_E).sum::<f64>();
        let right = bits / bytes as f64;
        let ours = Bpb::from_nats(&nats, bytes).unwrap().get();
        prop_assert!((ours / right - 1.0).abs() < 1e-12);
    }
}
