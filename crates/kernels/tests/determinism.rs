//! The same inputs give the same bits, whatever the number of threads.

use crate::oracle::{ids, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::muon::{self, Muon};
use kernels::{attention, embedding, gated_value, head, linear, mix, rms_norm, rope_norm};

/// Results of every op that reduces, as bits.
fn everything() -> Result<Vec<Vec<u32>>> {
    let t = |shape: &[usize], seed| uniform(shape, seed).to_dtype(DType::F32).unwrap();
    let (b, time, h, d, vocab) = (3, 150, 2, 32, 700);
    let (x, dy, w) = (t(&[b, time, h * d], 1), t(&[b, time, h * d], 2), t(&[h * d, h * d], 3));
    let (q, k, v) = (t(&[b, time, h, d], 4), t(&[b, time, h, d], 5), t(&[b, time, h, d], 6));
    let (cos, sin) = (t(&[time, d / 2], 7).cos()?, t(&[time, d / 2], 7).sin()?);
    let tokens = ids(&[b, time], vocab as u32, 8, &Device::Cpu)?;
    let table = t(&[vocab, h * d], 9);
    let dw = table.zeros_like()?;
    let loss = head::loss_and_gradients(&x, &table, &tokens, Some(15.0), 1.0, &dw)?;
    let d_table = table.zeros_like()?;
    embedding::add_backward(&d_table, &tokens, &dy)?;
    let attended = attention::forward(&q, &k, &v, 70)?;
    let d_attention = attention::backward(&q, &k, &v, 70, &attended, &v)?;
    let mixed = mix::backward(&x, &dy, &t(&[1], 1), &t(&[1], 2), &dy, [None, None])?;
    let gated = gated_value::backward(&q, &t(&[b, time, h], 3), &k, &v)?;
    let weights = [t(&[96, 48], 1), t(&[96, 48], 2)];
    let (moment, second) = (t(&[2, 96, 48], 3), t(&[2, 96, 1], 4).abs()?);
    let with = Muon { lr: 0.1, momentum: 0.9, beta2: 0.9, weight_decay: 0.1 };
    let grads = [t(&[96, 48], 5), t(&[96, 48], 6)];
    let update = |i: usize| muon::Update { w: weights[i].clone(), g: grads[i].clone(), copy: None };
    muon::step(&[update(0), update(1)], &moment, &second, &with)?;
    let [first, other] = weights;
    let all = [
        linear::forward(&x, &w)?,
        linear::backward_weight(&x, &dy)?,
        rms_norm::backward(&rms_norm::forward(&x)?, &dy, None)?,
        rope_norm::backward(&rope_norm::forward(&q, &cos, &sin)?, &cos, &sin, &v)?,
        loss.mean,
        loss.dx,
        dw,
        d_table,
        attended.out,
        attended.log_sum_exp,
        d_attention.q,
        d_attention.k,
        d_attention.v,
        mixed.r,
        mixed.z,
        gated.gate,
        first,
        other,
        moment,
        second,
    ];
    let bits = |t: &Tensor| Ok(t.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect());
    all.iter().map(bits).collect()
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let with_threads = |n| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        pool.install(|| everything().unwrap())
    };
    let one = with_threads(1);
    for n in [2, 3, 5] {
        for (i, (a, b)) in one.iter().zip(with_threads(n)).enumerate() {
            assert!(*a == b, "result {i} differs between 1 and {n} threads");
        }
    }
}
