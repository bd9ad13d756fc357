//! The summary block. Oracle: the block of the public baseline, to the letter.

use prepare::bpb::Bpb;
use prepare::profile::Profile;
use prepare::summary::{FitRecord, Summary, mfu_percent, peak_flops};

fn record() -> FitRecord {
    FitRecord {
        profile: Profile::Full,
        device: "NVIDIA H100 80GB HBM3".into(),
        seed: 42,
        vocab: 8192,
        context: 2048,
        num_steps: 953,
        tokens: 499_600_000,
        budget_s: Some(300.0),
        training_seconds: 300.1,
        total_seconds: 310.0,
        final_loss: Some(2.8),
        depth: 8,
        num_params: 50_300_000,
        flops_per_token: 2.3654e8,
        peak_mem_bytes: Some(47_249_029_529),
        mfu_percent: Some(39.8),
        cropped_tokens: 0,
        epochs: 0.9,
    }
}

fn block(fit: &FitRecord) -> String {
    Summary { bpb: Bpb::new(0.9979).unwrap(), fit, total_seconds: 325.9 }.to_string()
}

#[test]
fn the_block_is_the_baselines() {
    let right = "\
---
val_bpb:          0.997900
training_seconds: 300.1
total_seconds:    325.9
peak_vram_mb:     45060.2
mfu_percent:      39.80
total_tokens_M:   499.6
num_steps:        953
num_params_M:     50.3
depth:            8
";
    assert_eq!(block(&record()), right);
}

#[test]
fn what_is_not_known_is_said_to_be() {
    let block = block(&FitRecord { peak_mem_bytes: None, mfu_percent: None, ..record() });
    assert!(block.contains("peak_vram_mb:     unknown\nmfu_percent:      unknown\n"), "{block}");
}

#[test]
fn a_device_that_is_not_in_the_table_has_no_mfu() {
    for device in ["cpu: AMD EPYC 9B14, 2 threads", "NVIDIA GeForce GTX 1080", "NVIDIA RTX A4000", ""] {
        assert_eq!(peak_flops(device), None, "{device}");
    }
    assert_eq!(mfu_percent("cpu", 1e9, 1000, 1.0), None);
}

#[test]
fn variants_of_a_card_have_their_own_peak() {
    let teraflops = |device| peak_flops(device).unwrap() / 1e12;
    assert_eq!(teraflops("NVIDIA H100 80GB HBM3"), 989.4);
    assert_eq!(teraflops("NVIDIA H100 PCIe"), 756.5);
    assert_eq!(teraflops("NVIDIA H200"), 989.4);
    assert_eq!(teraflops("NVIDIA A100-SXM4-80GB"), 312.0);
    assert_eq!(teraflops("NVIDIA L4"), 121.0);
    assert_eq!(teraflops("NVIDIA L40S"), 362.1);
    assert_eq!(teraflops("NVIDIA GeForce RTX 3090"), 71.0);
}

/// Oracle: the published run, 39.8 % of an H100 at 499.6 M tokens in 300.1 s.
#[test]
fn mfu_is_flops_over_peak() {
    let mfu = mfu_percent("NVIDIA H100 80GB HBM3", 2.3654e8, 499_600_000, 300.1).unwrap();
    assert!((mfu - 39.8).abs() < 0.01, "{mfu}");
}

#[test]
fn the_record_survives_its_file() {
    let text = serde_json::to_string(&record()).unwrap();
    assert_eq!(serde_json::from_str::<FitRecord>(&text).unwrap(), record());
    let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    for key in [
        "profile",
        "device",
        "seed",
        "vocab",
        "context",
        "num_steps",
        "tokens",
        "training_seconds",
        "total_seconds",
        "final_loss",
        "depth",
        "num_params",
        "flops_per_token",
        "peak_mem_bytes",
        "mfu_percent",
        "cropped_tokens",
        "epochs",
    ] {
        assert!(keys.contains_key(key), "{key}");
    }
}
