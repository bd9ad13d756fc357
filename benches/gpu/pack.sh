#!/usr/bin/env bash
# Packs what `check.sh` runs on a machine with a GPU and without Rust: programs built with CUDA, stripped, and data.
#
#   benches/gpu/pack.sh [FOLDER]       # default: target/gpu
#
# Uses the nvcc on PATH, else that of `.ci/cuda-env`. CUDA_COMPUTE_CAP: the oldest card that it is for, 90 by default,
# which is a Hopper. The programs ask for the CUDA libraries of nvcc's major version,
# and for a driver as new as nvcc. Writes `gpu.tar.xz` and `check.sh`, nothing else, and fails when they
# are larger than 64 MiB, which is all that some such machines take.
set -euo pipefail
# before `cd`: the caller's own folder is meant
folder=${1:+$(realpath -m -- "$1")}
cd "$(dirname "$0")/../.."
folder=${folder:-$PWD/target/gpu}
most=$((64 << 20))

# without CUDA: the driver that looks for it, and what prepares data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/gpu"
env -u RUSTFLAGS -u CARGO_BUILD_TARGET cargo build --release --locked -p ratchet -p prepare
cp "${CARGO_TARGET_DIR:-target}/release/ratchet" "$work/gpu/"
RATCHET_CACHE=$work/gpu/cache "${CARGO_TARGET_DIR:-target}/release/prepare" --profile laptop

if ! command -v nvcc >/dev/null; then
  environment=$(.ci/cuda-env)
  eval "$environment"
fi
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}
cargo build --release --locked --features train/cuda,benches/cuda -p train -p benches --bin train --bin gpu
programs=${CARGO_TARGET_DIR:-target}/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
cp "$programs/train" "$programs/gpu" "$work/gpu/"
tests=$(cargo test --release --locked --features train/cuda -p train -p kernels --test main --no-run --message-format=json |
  python3 -c '
import json, sys
messages = [json.loads(line) for line in sys.stdin if line.startswith("{")]
made = [m for m in messages if m.get("executable") and "/crates/kernels" in m["package_id"]]
print(made[-1]["executable"])')
cp "$tests" "$work/gpu/kernels"
strip "$work/gpu/train" "$work/gpu/gpu" "$work/gpu/kernels" "$work/gpu/ratchet"
cp benches/peers/torch_gpt.py "$work/gpu/"
# a task for `ratchet doctor`, with a contest's sandbox
mkdir -p "$work/gpu/task/edit"
cat >"$work/gpu/task/ratchet.toml" <<'END'
task = { name = "gpu", editable = ["edit/**"] }
metric = { name = "val_bpb", goal = "minimize" }
prepare = { command = ["true"] }
fit = { command = ["true"] }
score = { command = ["true"], exam = true }
END
echo 'pub const X: f64 = 1.0; // knob: lin 0..2' >"$work/gpu/task/edit/x.rs"
git -C "$work/gpu/task" init -q
git -C "$work/gpu/task" add .
git -C "$work/gpu/task" -c user.name=gpu -c user.email=gpu@localhost commit -qm task
{
  echo "commit $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ", and changes")"
  nvcc --version | grep release
} >"$work/gpu/packed.txt"

mkdir -p "$folder"
# as root unpacks it, it is root's: git refuses a repository of someone else
tar -C "$work" --owner=0 --group=0 --numeric-owner -c gpu | xz -6 -T0 >"$folder/gpu.tar.xz"
cp benches/gpu/check.sh "$folder/"
size=$(cat "$folder/gpu.tar.xz" "$folder/check.sh" | wc -c)
echo "$folder: $size bytes, at most $most"
[ "$size" -le "$most" ]
