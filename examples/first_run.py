"""A run in ten lines: log, commit, look."""

import random

import barograph

run = barograph.init(project="quickstart", name="first", config={"actor": {"lr": 1e-6}, "seed": 7})
score = 0.1
for step in range(200):
    score += (1 - score) * random.uniform(-0.01, 0.03)
    run.log({"critic/score/mean": score, "actor/lr": 1e-6, "actor/approxkl": random.uniform(0.001, 0.004)})
    run.count(tokens=8192, samples=64)
    run.commit(step)
run.finish()
print(f"recorded {run.id} in {run.path}: look at it with  barograph show {run.id}")
