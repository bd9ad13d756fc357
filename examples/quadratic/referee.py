"""Maps the settings to a loss: a bowl with a valley along learning rate and batch, a cliff, and noise."""

import json, math, os, random, sys

text = open("settings.toml").read()
lines = (line.split("#")[0].split("=") for line in text.splitlines() if "=" in line.split("#")[0])
s = {name.strip(): value.strip().strip('"') for name, value in lines}
rate, decay, momentum = (float(s[name]) for name in ("learning_rate", "weight_decay", "momentum"))
batch, layers = (int(s[name]) for name in ("batch", "layers"))
if batch > 512:
    sys.exit(f"out of memory with batch {batch}")

loss = 1.0
loss += 0.05 * (math.log(rate / 0.03) - 0.5 * math.log(batch / 128)) ** 2  # the best rate grows with the batch
loss += 0.02 * math.log(batch / 128) ** 2
loss += 0.8 * (decay - 0.1) ** 2 + 0.003 * (layers - 12) ** 2 + 0.6 * (momentum - 0.85) ** 2
loss += {"constant": 0.1, "linear": 0.02, "cosine": 0.0}[s["schedule"]]
seed = os.environ.get("RATCHET_SEED", "0")
loss += random.Random(f"{seed} {sorted(s.items())}").gauss(0, 0.01)
print(json.dumps({"loss": loss}))
