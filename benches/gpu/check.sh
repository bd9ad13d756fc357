#!/usr/bin/env bash
# Checks and times everything on a GPU, with what `pack.sh` has packed, in at most 8 minutes:
#
#   target/gpu/check.sh [RESULTS]      # default: benches/runs/<date>-<machine> of the folder it is called from
#
# Needs NVIDIA's driver, CUDA's libraries (a toolkit's, or those that come with PyTorch) and Python; PyTorch for the
# comparison. Each part has a time limit and a log, and one that fails stops no other. A figure is of this very run, or
# `not measured` with the reason.
#
# PYTHON: with torch, default python3. RATCHET_CACHE: a cache that holds the prepared profile full, for the trial of
# 300 seconds, which takes most of the time. SECONDS_IN_ALL: default 480.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
full=${RATCHET_CACHE:-}
deadline=$((SECONDS + ${SECONDS_IN_ALL:-480}))
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
machine=$(printf '%s' "${card:-$(uname -n)}" | tr -cs '[:alnum:]' '-' | tr '[:upper:]' '[:lower:]')
results=${1:-benches/runs/$(date +%F)-${machine%-}}
mkdir -p "$results" || exit
results=$(cd "$results" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/gpu.tar.xz" "$work" 2>/dev/null ||
  tar -C "$work" -xJf "$here/gpu.tar.xz" || exit
cd "$work/gpu" || exit
export RATCHET_CACHE=$work/gpu/cache

# CUDA's libraries where toolkits and Python packages have them; the loader's own come last
packaged=$("$python" -c 'import glob, sys
print(":".join(f for path in sys.path for f in sorted(glob.glob(path + "/nvidia/*/lib"))))' 2>/dev/null)
toolkits=$(printf '%s:' /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$toolkits$packaged

# part NAME LIMIT COMMAND...: runs it with its output in NAME.log; one line says how it went
part() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begun=$SECONDS outcome
  shift 2
  if [ "$left" -lt 10 ]; then
    outcome='not run: no time left'
  else
    timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$results/$name.log" 2>&1
    case $? in
      0) outcome=ok ;;
      124 | 137) outcome='stopped: over its time' ;;
      *) outcome="failed: $(grep -vE '^ *([0-9]+:|at |Stack backtrace)|^ *$' "$results/$name.log" | tail -n 1 | cut -c 1-200)" ;;
    esac
  fi
  printf '%s\t%s\t%s\n' "$name" "$((SECONDS - begun))" "$outcome" | tee -a "$results/parts.tsv"
  [ "$outcome" = ok ]
}

describe() {
  cat packed.txt
  uname -srm
  nvidia-smi || echo 'no nvidia-smi'
  "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
  ldd ./train | grep -E 'libcu|libnv|not found'
}
trial() {
  ./train --profile "$1" --out "$work/$1" || exit
  if grep -q '"device": *"cpu' "$work/$1/fit.json"; then
    echo 'it ran on the CPU'
    exit 1
  fi
}
export -f describe trial
export python work

: >"$results/parts.tsv"
cd "$work/gpu" || exit
part machine 60 bash -c describe
part doctor 90 ./ratchet -C task doctor
part parity 120 ./kernels cuda:: --test-threads=1
small=(--depth 4 --width 256 --context 512 --rows 8)
part curve 90 ./gpu --json "$results/curve.json" curve "${small[@]}" --steps 20
if [ -d "$full/full" ]; then
  RATCHET_CACHE=$full part full 345 bash -c 'trial full'
fi
peer=(--peer "$python" --script torch_gpt.py)
part speed 180 ./gpu --json "$results/speed.json" speed "${peer[@]}" ||
  part speed-eager 90 ./gpu --json "$results/speed.json" speed "${peer[@]}" --eager ||
  part speed-ours 60 ./gpu --json "$results/speed.json" speed
part speed-64 60 ./gpu --json "$results/speed-64.json" speed --rows 64 --micro 4 --rounds 2
part ops 60 ./gpu --json "$results/ops.json" ops
part laptop 120 bash -c 'trial laptop'

"$python" - "$results" "$full" <<'END' | tee "$results/README.md"
import json, re, sys
from pathlib import Path

results, full = Path(sys.argv[1]), sys.argv[2]
parts = [line.split("\t") for line in (results / "parts.tsv").read_text().splitlines()]
outcome = {name: how for name, _, how in parts}
text = lambda name: (results / name).read_text(errors="replace") if (results / name).is_file() else ""
figures = lambda name: json.loads(text(name) or "{}")


def lacking(*names):
    """For a figure that these parts did not bring; why stands in the table of parts."""
    failed = [name for name in names if outcome.get(name, "ok") != "ok"]
    return "not measured" + (f": see {', '.join(failed)} below" if failed else "")


rows = []
seen = dict(re.findall(r"^\w+ +(gpu|sandbox) +(.*)$", text("doctor.log"), re.M))
rows += [(f"`ratchet doctor`, {name}", said) for name, said in seen.items()]
passed = re.search(r"test result: (\w+)\. (\d+) passed; (\d+) failed", text("parity.log"))
rows.append(("kernels that agree with their references", f"{passed[2]}, and {passed[3]} that do not" if passed else lacking("parity")))
curve = figures("curve.json")
rows.append(("loss, 20 steps, GPU from CPU, nats", f"at most {curve['apart']:.4f}, {curve['last'][0]:.4f} and {curve['last'][1]:.4f} at the end" if curve else lacking("curve")))
for name, which in [("speed.json", "128 × 2"), ("speed-64.json", "64 × 4")]:
    measured = figures(name)
    for side in ["ours", "torch"] if name == "speed.json" else ["ours"]:
        found = measured.get(side)
        why = lacking("speed", "speed-eager", "speed-ours") if name == "speed.json" else lacking("speed-64")
        for what, key, shown in [("tokens/s", "tokens_per_second", "{:.0f}"), ("MFU, %", "mfu", "{:.1f}"), ("peak memory, GB", "peak_bytes", None)]:
            value = found and found.get(key)
            shown_value = why if value is None else f"{value / 1e9:.1f}" if shown is None else shown.format(value)
            rows.append((f"{side}, {which} rows: {what}", shown_value))
    if measured.get("ours") and measured.get("torch"):
        peer = "compiled" if outcome.get("speed") == "ok" else "eager"
        ratio = measured["ours"]["tokens_per_second"] / measured["torch"]["tokens_per_second"]
        rows.append((f"ours over torch, {peer}: tokens/s", f"{ratio:.3f}"))
for profile, lack in [("laptop", lacking("laptop")), ("full", lacking("full") if outcome.get("full") else "not measured: no prepared data of the profile full")]:
    block = dict(re.findall(r"^(\w+): +(\S+)$", text(f"{profile}.log") if outcome.get(profile) == "ok" else "", re.M))
    for key in ["val_bpb", "training_seconds", "total_seconds"]:
        rows.append((f"trial of the profile {profile}: {key}", block.get(key, lack)))

print("\n| | this run |\n|---|---|")
for row in rows:
    print("| {} | {} |".format(*row))
print(f"\n```\n{text('ops.log').strip()}\n```" if figures("ops.json") else f"\ntime of each kernel: {lacking('ops')}")
print("\n| part | seconds | |\n|---|---|---|")
for row in parts:
    print("| {} | {} | {} |".format(*row))
END
echo "all of it is in $results"
