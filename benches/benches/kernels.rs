//! Each op beside its reference composition of candle ops, on the same input: times and their ratio.
//!
//! `cargo bench -p benches --bench kernels [-- NAME]`. Sizes are those of the step bench: 8 rows of 512 tokens,
//! width 256, two heads of 128, vocabulary 8,192. A backward is timed with its forward, since candle's
//! autograd cannot run one without the other.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Result, Tensor, Var};
use criterion::{Criterion, criterion_group, criterion_main};
use kernels::{attention, embedding, gated_value, head, linear, mix, relu_squared, rms_norm, rope_norm};

const ROWS: usize = 8;
const CONTEXT: usize = 512;
const WIDTH: usize = 256;
const HEADS: usize = 2;
const VOCAB: usize = 8192;

fn normal(shape: &[usize]) -> Result<Var> {
    Var::from_tensor(&Tensor::randn(0f32, 1.0, shape, &Device::Cpu)?)
}

/// Times both under one name and prints by how much ours is the faster, from the fastest pass of each.
fn compare<A, B>(
    c: &mut Criterion,
    name: &str,
    mut ours: impl FnMut() -> Result<A>,
    mut reference: impl FnMut() -> Result<B>,
) {
    let mut group = c.benchmark_group(name);
    let (mut our_best, mut best) = (Duration::MAX, Duration::MAX);
    group.bench_function("ours", |b| b.iter_custom(|n| repeat(n, &mut our_best, &mut ours)));
    group.bench_function("reference", |b| b.iter_custom(|n| repeat(n, &mut best, &mut reference)));
    group.finish();
    // a filter on the command line may have left one of them out
    if our_best < Duration::MAX && best < Duration::MAX {
        let ratio = best.as_secs_f64() / our_best.as_secs_f64();
        println!("{name}: ours {our_best:.2?}, candle ops {best:.2?}, {ratio:.1} times as fast\n");
    }
}

fn repeat<R>(n: u64, best: &mut Duration, f: &mut impl FnMut() -> Result<R>) -> Duration {
    let mut whole = Duration::ZERO;
    for _ in 0..n {
        let start = Instant::now();
        let result = f().expect("the op runs on these sizes");
        let took = start.elapsed();
        drop(result);
        *best = took.min(*best);
        whole += took;
    }
    whole
}

/// Gradients of Σ dy·y through candle's autograd.
fn autograd(y: Tensor, dy: &Tensor) -> Result<candle_core::backprop::GradStore> {
    (y * dy)?.sum_all()?.backward()
}

fn elementwise(c: &mut Criterion) -> Result<()> {
    let (x, x0, dy) = (stream()?, stream()?, stream()?);
    compare(
        c,
        "rms_norm",
        || {
            let normed = rms_norm::forward(&x)?;
            let dx = rms_norm::backward(&normed, &dy, None)?;
            Ok((normed.y, dx))
        },
        || autograd(rms_norm::reference(&x)?, &dy),
    );
    let (r, z) = (normal(&[1])?, normal(&[1])?);
    compare(
        c,
        "mix",
        || Ok((mix::forward(&x, &x0, &r, &z)?, mix::backward(&x, &x0, &r, &z, &dy, [None, None])?)),
        || autograd(mix::reference(&x, &x0, &r, &z)?, &dy),
    );
    let (hidden, d_hidden) = (normal(&[ROWS, CONTEXT, 4 * WIDTH])?, normal(&[ROWS, CONTEXT, 4 * WIDTH])?);
    compare(
        c,
        "relu_squared",
        || {
            let y = relu_squared::forward(&hidden)?;
            let dx = relu_squared::backward(&y, &d_hidden)?;
            Ok((y, dx))
        },
        || autograd(relu_squared::reference(&hidden)?, &d_hidden),
    );
    Ok(())
}

fn stream() -> Result<Var> {
    normal(&[ROWS, CONTEXT, WIDTH])
}

fn heads() -> Result<Var> {
    normal(&[ROWS, CONTEXT, HEADS, WIDTH / HEADS])
}

fn of_heads(c: &mut Criterion) -> Result<()> {
    let (q, k, v, dy) = (heads()?, heads()?, heads()?, heads()?);
    let angle = normal(&[CONTEXT, WIDTH / HEADS / 2])?;
    let (cos, sin) = (angle.cos()?.detach(), angle.sin()?.detach());
    compare(
        c,
        "rope_norm",
        || {
            let normed = rope_norm::forward(&q, &cos, &sin)?;
            let dx = rope_norm::backward(&normed, &cos, &sin, &dy)?;
            Ok((normed.y, dx))
        },
        || autograd(rope_norm::reference(&q, &cos, &sin)?, &dy),
    );
    let gate = normal(&[ROWS, CONTEXT, HEADS])?;
    compare(
        c,
        "gated_value",
        || Ok((gated_value::forward(&v, &gate, &k)?, gated_value::backward(&v, &gate, &k, &dy)?)),
        || autograd(gated_value::reference(&v, &gate, &k)?, &dy),
    );
    for window in [CONTEXT / 2, CONTEXT] {
        compare(
            c,
            &format!("attention window {window}"),
            || {
                let attended = attention::forward(&q, &k, &v, window)?;
                attention::backward(&q, &k, &v, window, &attended, &dy)
            },
            || autograd(attention::reference(&q, &k, &v, window)?, &dy),
        );
    }
    Ok(())
}

fn products(c: &mut Criterion) -> Result<()> {
    let (x, dy) = (stream()?, normal(&[ROWS, CONTEXT, 4 * WIDTH])?);
    let w = normal(&[4 * WIDTH, WIDTH])?;
    let dw = w.zeros_like()?;
    compare(
        c,
        "linear",
        || {
            linear::add_backward_weight(&dw, &x, &dy)?;
            Ok((linear::forward(&x, &w)?, linear::backward_input(&dy, &w, None)?))
        },
        || autograd(linear::reference(&x, &w)?, &dy),
    );
    let ids = Tensor::rand(0f32, VOCAB as f32, (ROWS, CONTEXT), &Device::Cpu)?.to_dtype(DType::U32)?;
    let table = Var::from_tensor(&(normal(&[VOCAB, WIDTH])?.as_tensor() * 0.05)?)?;
    let d_table = table.zeros_like()?;
    compare(
        c,
        "embedding",
        || {
            embedding::add_backward(&d_table, &ids, &x)?;
            embedding::forward(&table, &ids)
        },
        || autograd(embedding::reference(&table, &ids)?, &x),
    );
    compare(
        c,
        "head",
        || head::loss_and_gradients(&x, &table, &ids, Some(15.0), 1.0, &d_table),
        || head::reference(&x, &table, &ids, Some(15.0))?.backward(),
    );
    Ok(())
}

fn all(c: &mut Criterion) {
    for part in [elementwise, of_heads, products] {
        part(c).expect("tensors of these sizes fit in memory");
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);
