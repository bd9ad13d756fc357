//! The smallest honest contestant: the next token's logits depend on the present token alone.
//!
//! logits = E[x] · H with E: (V, R), H: (R, V), trained by plain gradient descent.
//! `cargo run --release -p prepare --features contest --example bigram -- --profile smoke`

use std::collections::BTreeMap;
use std::process::ExitCode;

use candle_core::{D, Device, Result, Tensor, Var};
use prepare::{Batch, Checkpoint, Contestant, Description, Trial};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const RANK: usize = 16; // width of the bottleneck
const ROWS: usize = 4; // rows a step
const RATE: f64 = 2.0; // gradient descent

pub(crate) struct Bigram {
    embed: Var, // (V, R)
    head: Var,  // (R, V)
}

impl Bigram {
    fn new(vocab: usize, seed: u64, device: &Device) -> Result<Bigram> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut uniform = |shape: (usize, usize), scale: f32| {
            let values: Vec<f32> = (0..shape.0 * shape.1).map(|_| rng.random_range(-scale..scale)).collect();
            Var::from_tensor(&Tensor::from_vec(values, shape, device)?)
        };
        Ok(Bigram { embed: uniform((vocab, RANK), 1.0)?, head: uniform((RANK, vocab), 0.01)? })
    }

    /// x: (B, T) → (B·T, V)
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.embed.index_select(&x.flatten_all()?, 0)?.matmul(self.head.as_tensor())
    }
}

impl Contestant for Bigram {
    fn fit(trial: &mut Trial) -> Result<Bigram> {
        let model = Bigram::new(trial.vocab(), trial.seed(), trial.device())?;
        let num_params = (2 * RANK * trial.vocab()) as u64;
        trial.describe(Description {
            depth: 1,
            num_params,
            flops_per_token: 6.0 * (RANK * trial.vocab()) as f64,
        });
        while !trial.done() {
            let Batch { x, y } = trial.batch(ROWS, trial.context())?;
            let logits = model.forward(&x)?;
            let picked = logits.gather(&y.flatten_all()?.unsqueeze(1)?, 1)?.squeeze(1)?;
            let loss = (logits.log_sum_exp(D::Minus1)? - picked)?.mean_all()?;
            let gradients = loss.backward()?;
            let rate = RATE * (1.0 - trial.progress());
            for var in [&model.embed, &model.head] {
                if let Some(gradient) = gradients.get(var) {
                    var.set(&(var.as_tensor() - (gradient * rate)?)?)?;
                }
            }
            trial.step(f64::from(loss.to_scalar::<f32>()?))?;
        }
        Ok(model)
    }

    fn save(&self) -> Result<Checkpoint> {
        let tensors = BTreeMap::from([
            ("embed".to_owned(), self.embed.as_tensor().clone()),
            ("head".to_owned(), self.head.as_tensor().clone()),
        ]);
        Ok(Checkpoint { tensors, config: serde_json::Value::Null })
    }

    fn load(checkpoint: &Checkpoint, _device: &Device) -> Result<Bigram> {
        let var = |name| Var::from_tensor(checkpoint.tensor(name)?);
        Ok(Bigram { embed: var("embed")?, head: var("head")? })
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = x.dims2()?;
        self.forward(x)?.reshape((b, t, ()))
    }
}

fn main() -> ExitCode {
    prepare::contest::<Bigram>()
}
