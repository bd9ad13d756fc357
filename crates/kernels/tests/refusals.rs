//! What the ops refuse: one line that says which op, what it got and what it needs; and never a deadlock.

use crate::oracle::uniform;
use candle_core::{DType, Device, Result, Tensor};
use kernels::adamw::{self, AdamW, Update};
use kernels::{accumulate, attention, embedding, head, linear, mix, rope_norm, scale};

fn refused<T>(result: Result<T>, words: &[&str]) {
    let message = match result {
        Ok(_) => panic!("must be refused: {words:?}"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

#[test]
fn operands_that_share_storage_with_the_target_are_refused() {
    let t = uniform(&[6, 6], 1);
    refused(accumulate::add_assign(&t, &t), &["add_assign", "shares its storage"]);
    let (top, bottom) = (t.narrow(0, 0, 3).unwrap(), t.narrow(0, 3, 3).unwrap());
    refused(accumulate::add_assign(&top, &bottom), &["add_assign", "shares its storage"]);
    let with = AdamW { lr: 0.1, beta1: 0.9, beta2: 0.9, eps: 1e-8, weight_decay: 0.0, step: 1 };
    let (w, v) = (t.clone(), uniform(&[6, 6], 3));
    let update = Update { g: uniform(&[6, 6], 2), m: w.clone(), w, v, copy: None, with };
    refused(adamw::step(&[update]), &["adamw", "shares its storage"]);
    let ids = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
    refused(head::loss_and_gradients(&uniform(&[2, 6], 2), &t, &ids, None, 1.0, &t), &["head"]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let t = |shape: &[usize]| uniform(shape, 1);
    refused(linear::forward(&t(&[2, 3]), &t(&[4, 5])), &["linear", "[2, 3]", "[4, 5]"]);
    refused(mix::forward(&t(&[2]), &t(&[2]), &t(&[2]), &t(&[1])), &["mix", "[2]"]);
    refused(rope_norm::forward(&t(&[1, 4, 2, 6]), &t(&[3, 3]), &t(&[3, 3])), &["rope_norm", "[3, 3]"]);
    let (q, kv) = (t(&[1, 4, 3, 6]), t(&[1, 4, 2, 6]));
    refused(attention::forward(&q, &kv, &kv, 4), &["attention", "3 query heads"]);
    let ids = Tensor::new(&[1u32, 9], &Device::Cpu).unwrap();
    refused(head::loss(&t(&[2, 3]), &t(&[4, 3]), &ids, None), &["head", "target 9"]);
    refused(head::loss(&t(&[2, 3]), &t(&[4, 3]), &ids, Some(0.0)), &["head", "cap"]);
}

#[test]
fn a_target_in_place_must_be_contiguous_and_of_the_same_type() {
    let turned = uniform(&[4, 6], 1).t().unwrap();
    refused(accumulate::add_assign(&turned, &uniform(&[6, 4], 2)), &["add_assign", "not contiguous"]);
    let single = uniform(&[4, 6], 1).to_dtype(DType::F32).unwrap();
    refused(accumulate::add_assign(&single, &uniform(&[4, 6], 2)), &["add_assign", "F64", "F32"]);
}

#[test]
fn kernels_refuse_before_they_are_launched() {
    emulator::run(emulator::Order::Forward, || {
        let t = |shape: &[usize]| uniform(shape, 1).to_dtype(DType::BF16).unwrap();
        let (whole, turned) = (t(&[6, 6]), t(&[4, 6]).t().unwrap());
        refused(accumulate::add_assign(&whole, &whole), &["add_assign", "shares its storage"]);
        refused(accumulate::add_assign(&turned, &t(&[6, 4])), &["add_assign", "not contiguous"]);
        let single = t(&[4, 6]).to_dtype(DType::F32).unwrap();
        refused(accumulate::add_assign(&single, &t(&[4, 6])), &["add_assign", "BF16", "F32"]);
        refused(scale::assign(&whole, &t(&[2])), &["scale", "[2]"]);
        let ids = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
        refused(embedding::add_backward(&whole, &ids, &t(&[2, 6])), &["embedding", "f32", "BF16"]);
    });
}
