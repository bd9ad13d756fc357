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
# 300 seconds, which comes last, if time remains. SECONDS_IN_ALL: default 480. Ends with 1 where a kernel or the loss
# disagrees with its reference.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
full=${RATCHET_CACHE:+$(realpath -m -- "$RATCHET_CACHE")}
deadline=$((SECONDS + ${SECONDS_IN_ALL:-480}))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# to a file and for a time: a driver that hangs cannot be killed, and would hold a pipe open
timeout --kill-after=1 10 nvidia-smi --query-gpu=name --format=csv,noheader >"$work/card" 2>/dev/null
card=$(head -n 1 "$work/card")
machine=$(printf '%s' "${card:-$(uname -n)}" | tr -cs '[:alnum:]' '-' | tr '[:upper:]' '[:lower:]')
results=${1:-benches/runs/$(date +%F)-${machine%-}}
mkdir -p "$results" || exit
results=$(cd "$results" && pwd)
# nothing of an earlier run
parts=(machine doctor parity curve speed speed-eager speed-ours speed-64 ops laptop full)
rm -f "$results/parts.tsv" "$results/README.md" || exit
for name in "${parts[@]}"; do
  rm -f "$results/$name.log" "$results/$name.json" || exit
done

"$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/gpu.tar.xz" "$work" 2>/dev/null ||
  tar --no-same-owner -C "$work" -xJf "$here/gpu.tar.xz" || exit
cd "$work/gpu" || exit
export RATCHET_CACHE=$work/gpu/cache

# CUDA's libraries where toolkits and Python packages have them; the loader's own come last
folders=$("$python" -c 'import glob, sys
print("".join(":" + f for path in sys.path for f in sorted(glob.glob(path + "/nvidia/*/lib"))))' 2>/dev/null)
folders=${LD_LIBRARY_PATH:-}$(printf ':%s' /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib)$folders
export LD_LIBRARY_PATH=${folders#:}

# `timeout` puts a part in a group of its own, which no Ctrl-C reaches
running=
interrupted() {
  trap '' INT TERM HUP
  if [ -n "$running" ]; then
    kill -TERM "$running" 2>/dev/null # it passes this on, and KILL five seconds later
    wait "$running"
    kill -KILL -- "-$running" 2>/dev/null
  fi
  exit 130
}
trap interrupted INT TERM HUP

# part NAME LIMIT COMMAND...: runs it with its output, the first and the last 64 KiB of it, in NAME.log; one line says
# how it went. least: the seconds without which it is not begun.
part() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begun=$SECONDS outcome reader
  shift 2
  if [ "$left" -lt "${least:-10}" ]; then
    outcome='not run: no time left'
  else
    limit=$((limit < left ? limit : left))
    rm -f "$work/output"
    mkfifo "$work/output" || exit
    timeout "$((limit + 10))" bash -c 'head -c 65536; tail -c 65536 | sed "1s/^/\n[...]\n/"' <"$work/output" >"$results/$name.log" &
    reader=$!
    timeout --kill-after=5 "$limit" "$@" >"$work/output" 2>&1 &
    running=$!
    wait "$running"
    outcome=$?
    kill -KILL -- "-$running" 2>/dev/null # what it has left running
    running=
    wait "$reader"
    case $outcome in
      0) outcome=ok ;;
      124 | 137) outcome='stopped: over its time' ;;
      *) outcome="failed: $(why <"$results/$name.log")" ;;
    esac
  fi
  printf '%s\t%s\t%s\n' "$name" "$((SECONDS - begun))" "$outcome" | tee -a "$results/parts.tsv"
  [ "$outcome" = ok ]
}
# the last line that is no backtrace, fit for a terminal
why() {
  grep -avE '^ *([0-9]+:|at |Stack backtrace)|^ *$' | tail -n 1 | tr '[:cntrl:]' ' ' | cut -c 1-200
}

describe() {
  cat packed.txt
  uname -srm
  timeout --kill-after=1 10 nvidia-smi || echo 'no nvidia-smi'
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

part machine 60 bash -c describe
part doctor 90 ./ratchet -C task doctor
part parity 120 ./kernels cuda:: --test-threads=1
small=(--depth 4 --width 256 --context 512 --rows 8)
part curve 90 ./gpu --json "$results/curve.json" curve "${small[@]}" --steps 20
peer=(--peer "$python" --script torch_gpt.py)
part speed 180 ./gpu --json "$results/speed.json" speed "${peer[@]}" ||
  part speed-eager 90 ./gpu --json "$results/speed-eager.json" speed "${peer[@]}" --eager ||
  part speed-ours 60 ./gpu --json "$results/speed-ours.json" speed
part speed-64 60 ./gpu --json "$results/speed-64.json" speed --rows 64 --micro 4 --rounds 2
part ops 60 ./gpu --json "$results/ops.json" ops
part laptop 120 bash -c 'trial laptop'
if [ -d "$full/full" ]; then
  RATCHET_CACHE=$full least=330 part full 345 bash -c 'trial full'
fi

"$python" - "$results" <<'END' | tee "$results/README.md"
import json, re, sys
from pathlib import Path

results = Path(sys.argv[1])
text = lambda name: (results / name).read_text(errors="replace") if (results / name).is_file() else ""
parts = [line.split("\t", 2) for line in text("parts.tsv").splitlines() if line.count("\t") >= 2]
outcome = {name: how for name, _, how in parts}
ok = lambda name: outcome.get(name) == "ok"
figures = lambda name: json.loads(text(f"{name}.json")) if ok(name) else {}
cell = lambda said: re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(said)).replace("|", "\\|")


def lacking(*names):
    """For a figure that these parts did not bring; why stands in the table of parts."""
    failed = [name for name in names if not ok(name)]
    return "not measured" + (f": see {', '.join(failed)} below" if failed else "")


def row(name, value):
    """One that cannot be read costs no other; whether this one could."""
    said = fault = None
    try:
        said = value()
    except Exception as error:
        fault = f"not measured: {type(error).__name__}, {error}"
    print(f"| {cell(name)} | {cell(fault or said)} |")
    return not fault


print("\n| | this run |\n|---|---|")
for name, said in dict(re.findall(r"^\w+ +(gpu|sandbox) +(.*)$", text("doctor.log"), re.M)).items():
    row(f"`ratchet doctor`, {name}", lambda: said)
passed = re.search(r"test result: \w+\. (\d+) passed; (\d+) failed", text("parity.log"))
row("kernels that agree with their references", lambda: f"{passed[1]}, and {passed[2]} that do not" if passed else lacking("parity"))


def loss():
    curve = figures("curve")
    return f"at most {curve['apart']:.4f}, {curve['last'][0]:.4f} and {curve['last'][1]:.4f} at the end" if curve else lacking("curve")


compared = row("loss, 20 steps, GPU from CPU, nats", loss)
tried = [name for name in ["speed", "speed-eager", "speed-ours"] if name in outcome]


def speed(part, side, key, shown, scale, *names):
    value = (figures(part).get(side) or {}).get(key)
    return lacking(*names) if value is None else shown.format(value / scale)


def ratio(part):
    measured = figures(part)
    if not (measured.get("ours") and measured.get("torch")):
        return lacking(*tried)
    return f"{measured['ours']['tokens_per_second'] / measured['torch']['tokens_per_second']:.3f}"


last = tried[-1] if tried else "speed"
for part, side, which, names in [(last, "ours", "128 × 2", tried), (last, "torch", "128 × 2", tried), ("speed-64", "ours", "64 × 4", ["speed-64"])]:
    for what, key, shown, scale in [("tokens/s", "tokens_per_second", "{:.0f}", 1), ("MFU, %", "mfu", "{:.1f}", 1), ("peak memory, GB", "peak_bytes", "{:.1f}", 1e9)]:
        row(f"{side}, {which} rows: {what}", lambda: speed(part, side, key, shown, scale, *names))
row(f"ours over torch, {'compiled' if last == 'speed' else 'eager'}: tokens/s", lambda: ratio(last))
for profile in ["laptop", "full"]:
    lack = lacking(profile) if profile in outcome else "not measured: no prepared data of this profile"
    block = dict(re.findall(r"^(\w+): +(\S+)$", text(f"{profile}.log") if ok(profile) else "", re.M))
    for key in ["val_bpb", "training_seconds", "total_seconds"]:
        row(f"trial of the profile {profile}: {key}", lambda: block.get(key, lack))
each = re.sub(r"[^\n -~]|`", "?", text("ops.log").strip())
print(f"\n```\n{each}\n```" if ok("ops") else f"\ntime of each kernel: {lacking('ops')}")
print("\n| part | seconds | |\n|---|---|---|")
for part in parts:
    print("| {} | {} | {} |".format(*map(cell, part)))
agree = ok("parity") and passed and int(passed[1]) > 0 and ok("curve") and compared
sys.exit(0 if agree else "the kernels are not shown to agree with their references: see parity and curve")
END
agree=${PIPESTATUS[0]}
echo "all of it is in $results"
exit "$agree"
