//! The fused layers on the tape: gradients reach the right inputs. Oracle: central differences in f64.

use candle_core::{Device, Result, Tensor};
use tape::{Node, Param, Tape, check};

use crate::{normal, param};

fn agrees(params: &[&Param], f: impl Fn(&Tape) -> Result<Node>) {
    let weighed = |tape: &Tape| {
        let y = f(tape)?;
        let weights = normal(y.dims(), 99)?;
        (&y * &weights)?.sum_all()
    };
    check::gradients(params, 1e-6, weighed).unwrap();
}

fn ids(values: &[u32], dims: (usize, usize)) -> Tensor {
    Tensor::from_slice(values, dims, &Device::Cpu).unwrap()
}

#[test]
fn embedding_and_norm_gradients_agree_with_finite_differences() {
    let w = param("w", &[5, 4], 1);
    // one id twice, one never
    let ids = ids(&[0, 3, 3, 1, 4, 0], (2, 3));
    agrees(&[&w], |t| t.embedding(&w, &ids)?.rms_norm());
    agrees(&[&w], |t| t.param(&w).relu_squared());
}

#[test]
fn mix_gradients_reach_both_streams_and_both_weights() {
    let (x, x0, r, z) =
        (param("x", &[2, 3, 4], 1), param("x0", &[2, 3, 4], 2), param("r", &[3], 3), param("z", &[3], 4));
    agrees(&[&x, &x0, &r, &z], |t| {
        let (r, z) = (t.param(&r), t.param(&z));
        let (mut y, x0) = (t.param(&x), t.param(&x0));
        for layer in 0..3 {
            y = y.mix(&x0, &r.narrow(0, layer, 1)?, &z.narrow(0, layer, 1)?)?;
        }
        Ok(y)
    });
}

#[test]
fn attention_gradients_reach_queries_keys_values_gates_and_tables() {
    let (b, t, h, kv, d) = (2, 5, 4, 2, 6);
    let (q, k, v) =
        (param("q", &[b, t, h, d], 1), param("k", &[b, t, kv, d], 2), param("v", &[b, t, kv, d], 3));
    let (gate, table) = (param("gate", &[b, t, kv], 4), param("table", &[3, kv * d], 5));
    let ids = ids(&[0, 1, 2, 1, 1, 0, 2, 2, 1, 0], (b, t));
    let angles = normal(&[t, d / 2], 6).unwrap();
    let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
    for window in [2, t] {
        agrees(&[&q, &k, &v, &gate, &table], |tape| {
            let (q, k) = (tape.param(&q).rope_norm(&cos, &sin)?, tape.param(&k).rope_norm(&cos, &sin)?);
            let value = tape.embedding(&table, &ids)?.reshape((b, t, kv, d))?;
            q.attention(&k, &tape.param(&v).gated_value(&tape.param(&gate), &value)?, window)
        });
    }
}

#[test]
fn head_loss_gradients_are_scaled_by_what_comes_from_above() {
    let (x, w) = (param("x", &[2, 3, 4], 1), param("w", &[7, 4], 2));
    let targets = ids(&[0, 6, 3, 3, 1, 5], (2, 3));
    for cap in [None, Some(2.0)] {
        agrees(&[&x, &w], |t| t.param(&x).head_loss(&w, &targets, cap)? * 0.3);
        // the table of the embedding is the head's as well
        agrees(&[&w], |t| t.embedding(&w, &targets)?.head_loss(&w, &targets, cap));
        agrees(&[&w], |t| t.embedding(&w, &targets)?.head_loss(&(&t.param(&w) * 0.5)?, &targets, cap)?.sqr());
    }
}
