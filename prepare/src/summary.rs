//! What a run amounts to: `fit.json`, the summary block, MFU.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bpb::Bpb;
use crate::profile::Profile;

/// File of the [`FitRecord`].
pub const FIT_FILE: &str = "fit.json";
/// File of the loss curve: step, seconds, progress, tokens, loss.
pub const CURVE_FILE: &str = "steps.csv";

/// What `fit` measured of itself; a driver holds it against its own measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FitRecord {
    /// The profile trained on.
    pub profile: Profile,
    /// The device as a person knows it.
    pub device: String,
    /// The harness's seed.
    pub seed: u64,
    /// Number of ids.
    pub vocab: usize,
    /// Context of the exam.
    pub context: usize,
    /// Steps recorded.
    pub num_steps: u64,
    /// Training tokens handed out.
    pub tokens: u64,
    /// The time budget, seconds; null for a number of steps.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// Inside the budget: from before `Contestant::fit` until the model is there and the device idle.
    pub training_seconds: f64,
    /// From the start of the process until all but this record was written.
    pub total_seconds: f64,
    /// Training loss of the last step, nats a token; none was recorded: null.
    pub final_loss: Option<f64>,
    /// Layers, as the contestant says.
    pub depth: usize,
    /// Parameters, as the contestant says.
    pub num_params: u64,
    /// FLOPs a training token, as the contestant says.
    pub flops_per_token: f64,
    /// Most memory held: of the device, or resident on a CPU; null where the system does not say.
    pub peak_mem_bytes: Option<u64>,
    /// Share of the device's peak; null for a device that is not in the table.
    pub mfu_percent: Option<f64>,
    /// Training tokens cut off where a document was cropped to fill a row.
    pub cropped_tokens: u64,
    /// How often the training text went by.
    pub epochs: f64,
}

/// Dense bf16 peaks with f32 accumulation, TFLOP/s, from the makers' data sheets. The first name that a
/// device's name contains counts, so variants come before their family.
const PEAK_TFLOPS: [(&str, f64); 22] = [
    ("GB200", 2500.0),
    ("B200", 2250.0),
    ("B100", 1750.0),
    ("H200 NVL", 835.5),
    ("H200", 989.4),
    ("H100 NVL", 835.5),
    ("H100 PCIe", 756.5),
    ("H100", 989.4),
    ("H800", 989.4),
    ("A100", 312.0),
    ("A800", 312.0),
    ("A40", 149.7),
    ("A30", 165.0),
    ("L40S", 362.1),
    ("L40", 181.1),
    ("L4", 121.0),
    ("RTX 6000 Ada", 364.2),
    ("RTX A6000", 154.8),
    ("RTX 5090", 209.5),
    ("RTX 4090", 165.2),
    ("RTX 3090 Ti", 80.0),
    ("RTX 3090", 71.0),
];

/// Dense bf16 peak of a device, FLOP/s, or `None` for one that is not in the table, every CPU included.
pub fn peak_flops(device: &str) -> Option<f64> {
    // as whole words: an "RTX A4000" is no "A40"
    let words = |text: &str| format!(" {text} ");
    let device = words(&device.replace('-', " "));
    PEAK_TFLOPS.iter().find(|(name, _)| device.contains(&words(name))).map(|(_, tflops)| tflops * 1e12)
}

/// Model FLOPs utilisation, percent of the device's peak; `None` for an unknown device.
pub fn mfu_percent(device: &str, flops_per_token: f64, tokens: u64, seconds: f64) -> Option<f64> {
    let peak = peak_flops(device)?;
    Some(100.0 * flops_per_token * tokens as f64 / seconds / peak)
}

/// The block that a run by hand ends with; readers of logs look for its keys.
pub struct Summary<'a> {
    /// The score.
    pub bpb: Bpb,
    /// What `fit` measured.
    pub fit: &'a FitRecord,
    /// Seconds from the start of the run to its end, scoring included.
    pub total_seconds: f64,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = self.fit;
        let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
        let peak_mb = fit.peak_mem_bytes.map(|bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
        let mfu = fit.mfu_percent.map(|percent| format!("{percent:.2}"));
        writeln!(f, "---")?;
        writeln!(f, "val_bpb:          {}", self.bpb)?;
        writeln!(f, "training_seconds: {:.1}", fit.training_seconds)?;
        writeln!(f, "total_seconds:    {:.1}", self.total_seconds)?;
        writeln!(f, "peak_vram_mb:     {}", known(peak_mb))?;
        writeln!(f, "mfu_percent:      {}", known(mfu))?;
        writeln!(f, "total_tokens_M:   {:.1}", fit.tokens as f64 / 1e6)?;
        writeln!(f, "num_steps:        {}", fit.num_steps)?;
        writeln!(f, "num_params_M:     {:.1}", fit.num_params as f64 / 1e6)?;
        writeln!(f, "depth:            {}", fit.depth)
    }
}
