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

#[test]
fn kernels_refuse_operands_of_another_type_or_shape() {
    use kernels::accumulate::Sum;
    use kernels::rms_norm::{self, Normed};
    use kernels::{gated_value, relu_squared};
    // a kernel would read them as what it takes, and past their end
    emulator::run(emulator::Order::Forward, || {
        let half = |shape: &[usize]| uniform(shape, 1).to_dtype(DType::BF16).unwrap();
        let single = |shape: &[usize]| uniform(shape, 1).to_dtype(DType::F32).unwrap();
        let (x, s) = (half(&[8, 8]), single(&[1]));
        let wrong = &["F32", "BF16"];
        refused(mix::forward(&x, &single(&[8, 8]), &s, &s), wrong);
        refused(mix::backward(&x, &x, &s, &s, &single(&[8, 8]), [None, None]), wrong);
        let heads = half(&[1, 2, 2, 8]);
        refused(gated_value::forward(&heads, &single(&[1, 2, 2]), &heads), wrong);
        refused(relu_squared::backward(&single(&[8, 8]), &x), wrong);
        refused(linear::forward(&x, &single(&[4, 8])), wrong);
        refused(linear::backward_weight(&x, &single(&[8, 4])), wrong);
        refused(embedding::forward(&x, &half(&[3])), &["ids must be u32"]);

        let normed = rms_norm::forward(&x).unwrap();
        let short = Normed { y: x.clone(), scale: single(&[1]) };
        refused(rms_norm::backward(&short, &x, None), &["rms_norm", "8 rows"]);
        for owned in [false, true] {
            let (wide, low) = (single(&[8, 8]), half(&[1, 8]));
            let sum = |so_far| Some(Sum { so_far, owned });
            refused(rms_norm::backward(&normed, &x, sum(&wide)), wrong);
            refused(rms_norm::backward(&normed, &x, sum(&low)), &["rms_norm", "[1, 8]"]);
            refused(linear::backward_input(&x, &half(&[8, 8]), sum(&low)), &["linear", "[1, 8]"]);
        }
        refused(linear::add_backward_weight(&x, &x, &half(&[8, 8])), &["linear", "shares its storage"]);
    });
}
