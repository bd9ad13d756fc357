#!/usr/bin/env python3
"""A micro-step of the profile `full` on paper: bytes, operations and time of all that it launches.

    target/release/gpu --cpu --json ops.json ops --rows 3        # what is launched, by the real code
    .ci/cuda-kernels --json kernels.json                         # registers, by NVIDIA's compiler
    benches/gpu/paper.py ops.json kernels.json

Time is what the slower of the two takes: memory at 4.3 TB/s, products at 790 TFLOP/s, about what an H200 gives for
long. A pass is one reading or writing of a tensor (tokens, C) of bf16. Nothing here has been measured.
"""

import json
import sys

TOKENS, C, HEADS, D, VOCAB, DEPTH, T, MICRO = 128 * 2048, 512, 4, 128, 8192, 8, 2048, 2
WINDOWS = [1024, 1024, 1024, 2048] * 2
BANDWIDTH, PRODUCTS = 4.3e12, 790e12
WARP_PRODUCTS = 350e12  # what FlashAttention-2 gets from a Hopper with mma.sync, arXiv 2407.08608
PASS = 2 * TOKENS * C
STATISTIC = 4 * TOKENS  # an f32 a row
SHARED, WARPS, BLOCKS, REGISTERS = 227 << 10, 64, 32, 65_536  # of a multiprocessor of 9.0

tables = 1 + DEPTH // 2
blocks = DEPTH * 12 * C * C + DEPTH // 2 * HEADS * 32
# bytes of one launch
BYTES = {
    "embedding_forward": PASS + 4 * TOKENS,  # the table's rows stay in the cache
    "embedding_count": 8 * TOKENS,
    "embedding_place": 12 * TOKENS,
    "embedding_sum": PASS + 2 * 4 * TOKENS / 64 * C + 8 * VOCAB * C,
    "embedding_join": 2 * 4 * TOKENS / 64 * C + 8 * VOCAB * C,
    "rms_norm_forward": 2 * PASS + STATISTIC,
    "rms_norm_backward": 4 * PASS + STATISTIC,
    "mix_forward": 3 * PASS,
    "mix_backward": 7 * PASS,  # x, x0, dy, what dx0 held, dx, dx0; and what dx held, where there was something
    "mix_finish": 0,
    "rope_norm_forward": 2 * PASS + HEADS * STATISTIC,
    "rope_norm_backward": 3 * PASS + HEADS * STATISTIC,
    "gated_value_forward": 3 * PASS,
    "gated_value_backward": 3 * PASS,  # dv is dy itself
    "relu_squared_forward": 2 * 4 * PASS,
    "relu_squared_backward": 3 * 4 * PASS,
    "head_rows": 2 * 2 * TOKENS * VOCAB,  # all launches together
    "head_mean": STATISTIC,
    "assign_scaled_f32": 8 * VOCAB * C,
    "assign_scaled_bf16": 2 * PASS,
    "assign_sum_bf16": 3 * PASS,
    "assign_sum_f32": 0,  # of scalars, and once of the head's gradient
    # weights, gradients and moments; the tables' are bf16, their gradients f32
    "adamw": VOCAB * C * (tables * (2 * 3 * 2 + 4) + 4 * 7 + 2),
    "muon_momentum": 12 * blocks / 4,
    "muon_start": 10 * blocks / 4,
    "muon_rows": 2 * blocks / 4,
    "muon_columns": 2 * blocks / 4,
    "muon_finish": 12 * blocks / 4,
}
UPDATE = ("adamw", "muon_")  # once in MICRO micro-steps


def attention(name):
    """Bytes and operations of all launches of one kernel of attention, for all layers' windows."""
    rows = TOKENS // T * HEADS
    # tiles of 64 queries and 128 keys that lie inside the window, at least in part; the forward's, 128 and 64, are as many
    tiles = sum((min(T - 1, n + 127 + w) // 64 - n // 64 + 1) * rows for w in WINDOWS for n in range(0, T, 128))
    product = 2 * 64 * 128 * D
    if name == "attention_rows":
        return DEPTH * (2 * PASS + 3 * HEADS * STATISTIC), 0
    if name.startswith("attention_forward"):
        return DEPTH * (4 * PASS + HEADS * STATISTIC), 2 * product * tiles
    # dq so far: f32, written and read again between two blocks of keys, by the cache in part
    again = 2 * 4 * 64 * D * (tiles - DEPTH * rows * T // 64)
    return DEPTH * (7 * PASS + 2 * HEADS * STATISTIC) + again, 5 * product * tiles


def product(p, tokens):
    """A row for a product: its name, its number, bytes and operations of all of them together, and its share."""
    (m, k, n), batch, times = p["product"], p["batch"], p["times"]
    if 1 in (m, k):  # the head's, by the row on a CPU, by chunks of rows on a GPU
        if m == 1:
            m, times = TOKENS, times / tokens
        else:
            k, times = TOKENS, times / tokens
    m, k, n = (TOKENS if size == tokens else size for size in (m, k, n))
    size = 2 * (m * k + k * n) + p["to_bytes"] * m * n * (2 if p["adds"] else 1)
    name = f"({m}, {n}) {'f32' if p['to_bytes'] == 4 else 'bf16'} {'+=' if p['adds'] else '='} sums of {k}"
    update = TOKENS not in (m, k)
    return (f"{batch} × {name}" if batch > 1 else name, times, times * batch * size, times * batch * 2 * m * k * n, update)


def main():
    ops, compiled = (json.load(open(path)) for path in sys.argv[1:3])
    registers = {row["kernel"]: row for row in compiled if row["arch"] == 90}
    rows = []  # name, number, bytes, operations, whether of the update, what the compiler says
    for row in ops["table"]:
        if "product" in row:
            rows.append((*product(row, ops["tokens"]), ""))
            continue
        name, times, threads = row["kernel"], row["times"], row["threads"]
        of_attention = name.startswith("attention")
        if name not in BYTES and not of_attention:
            sys.exit(f"nothing is known here of {name}: add it to BYTES")
        if name.startswith("head_rows"):
            times = 1
        warps = (threads + 31) // 32
        held = registers[name]["registers"]
        fit = min(REGISTERS // (warps * 32 * (held + 7 & ~7)), WARPS // warps, BLOCKS, SHARED // (row["shared"] + 1024))
        said = f"{held} / {row['shared'] / 1024:.1f} KiB / {100 * fit * warps // WARPS} %"
        size, flops = attention(name) if of_attention else (times * BYTES[name], 0)
        rows.append((name, times, size, flops, name.startswith(UPDATE), said))

    def ms(row, attends=PRODUCTS):
        rate = attends if row[0].startswith("attention") else PRODUCTS
        return 1e3 * max(row[2] / BANDWIDTH, row[3] / rate) / (MICRO if row[4] else 1)

    rows.sort(key=ms, reverse=True)
    print("| | times | GB | TFLOP | ms | registers / shared / occupancy |\n|---|---|---|---|---|---|")
    for row in rows:
        name, times, size, flops, _, said = row
        print(f"| {name} | {times:.0f} | {size / 1e9:.2f} | {flops / 1e12:.2f} | {ms(row):.2f} | {said} |")
    total = sum(ms(row) for row in rows)
    model = 6 * (blocks + VOCAB * C) + sum(12 * HEADS * D * w for w in WINDOWS)
    print(f"| sum | | {sum(r[2] / (MICRO if r[4] else 1) for r in rows) / 1e9:.1f} |"
          f" {sum(r[3] / (MICRO if r[4] else 1) for r in rows) / 1e12:.1f} | {total:.1f} | |")
    slower = sum(ms(row, WARP_PRODUCTS) for row in rows)
    for how, time in [("as above", total), ("with attention at 350 TFLOP/s", slower)]:
        mfu = 100 * model * TOKENS / (time / 1e3) / 989.4e12
        print(f"\n{how}: {time:.1f} ms of the 135 ms that there are, {TOKENS / time / 1e3:.2f} M tokens/s, {mfu:.1f} % MFU")
    print(f"\nWhat is of the update counts for one micro-step of {MICRO}.")


if __name__ == "__main__":
    main()
