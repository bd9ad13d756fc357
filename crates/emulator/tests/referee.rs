//! The exam's kernel, `prepare/src/cross_entropy/cuda.cu`. Oracle: −ln softmax in f64, term by term.

use half::bf16;
use kernels::cuda::Launch;

/// `Positions` of its source.
#[repr(C)]
#[derive(Clone, Copy)]
struct Positions {
    logits: u64,
    targets: u64,
    nats: u64,
    vocab: i32,
}

fn oracle(logits: &[f64], target: usize) -> f64 {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + logits.iter().map(|v| (v - max).exp()).sum::<f64>().ln() - logits[target]
}

/// What the kernel says of these positions; the same in every order of threads.
fn nats<T>(kernel: &'static str, logits: &[T], targets: &[u32]) -> Vec<f32> {
    let vocab = (logits.len() / targets.len()) as i32;
    let made = emulator::ORDERS.map(|order| {
        let mut nats = vec![0f32; targets.len()];
        let params = Positions {
            logits: logits.as_ptr().expose_provenance() as u64,
            targets: targets.as_ptr().expose_provenance() as u64,
            nats: nats.as_mut_ptr().expose_provenance() as u64,
            vocab,
        };
        let launch = Launch { kernel, grid: [targets.len() as u32, 1, 1], threads: 256, shared: 64 };
        // SAFETY: positions · vocab logits, and as many targets and nats as there are positions.
        unsafe { emulator::launch(order, &launch, &params) }.unwrap();
        nats
    });
    let bits = |nats: &[f32]| nats.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
    assert!(made.iter().all(|nats| bits(nats) == bits(&made[0])), "{kernel}: the order of threads shows");
    made.into_iter().next().unwrap()
}

/// Logits of a size, odd ones out included, and targets.
fn case(positions: usize, vocab: usize, size: f32) -> (Vec<f32>, Vec<u32>) {
    let draw = |i: usize| (((i * 7919 + 13) % 10_007) as f32 / 5003.5 - 1.0) * size;
    let targets = (0..positions).map(|i| ((i * 31 + 7) % vocab) as u32).collect();
    ((0..positions * vocab).map(draw).collect(), targets)
}

#[test]
fn the_exams_kernel_matches_f64_on_odd_sizes_and_large_logits() {
    for (positions, vocab, size) in
        [(3, 8192, 15.0), (2, 8191, 1.0), (7, 17, 4.0), (2, 1, 9.0), (3, 257, 1e4)]
    {
        let (logits, targets) = case(positions, vocab, size);
        let check = |kernel, logits: &[f64], nats: Vec<f32>| {
            for ((row, &target), nats) in logits.chunks(vocab).zip(&targets).zip(nats) {
                let right = oracle(row, target as usize);
                let error = (f64::from(nats) - right).abs() / right.abs().max(1.0);
                assert!(error < 2e-6, "{kernel} ({positions}, {vocab}): {nats} is not {right}");
            }
        };
        let wide: Vec<f64> = logits.iter().map(|&v| f64::from(v)).collect();
        check("f32", &wide, nats("cross_entropy_f32", &logits, &targets));
        let half: Vec<bf16> = logits.iter().map(|&v| bf16::from_f32(v)).collect();
        let wide: Vec<f64> = half.iter().map(|v| v.to_f64()).collect();
        check("bf16", &wide, nats("cross_entropy_bf16", &half, &targets));
    }
}

#[test]
fn one_logit_that_is_no_number_makes_its_position_none() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 255, 256, 299, 300, 599] {
            let (mut logits, targets) = case(2, 300, 3.0);
            logits[at] = bad;
            let nats = nats("cross_entropy_f32", &logits, &targets);
            assert_eq!([nats[0].is_nan(), nats[1].is_nan()], [at < 300, at >= 300], "{bad} at {at}");
        }
    }
    let largest = nats("cross_entropy_f32", &[f32::MAX, f32::MIN, f32::MAX], &[0]);
    assert!((largest[0] - std::f32::consts::LN_2).abs() < 1e-6, "as large as f32 goes they are numbers");
}
