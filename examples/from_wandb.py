"""A script for W&B that barograph records: one line is changed, the import."""

import random

import barograph.wandb as wandb  # was: import wandb

wandb.init(project="quickstart", name="from-wandb", config={"lr": 1e-6, "group_size": 8})
wandb.define_metric("eval/*", step_metric="train/step")

score = 0.1
for step in range(200):
    score += (1 - score) * random.uniform(-0.01, 0.03)
    wandb.log({"reward": score, "kl": random.uniform(0.001, 0.004), "lr": wandb.config.lr}, commit=False)
    if step % 50 == 0:
        table = wandb.Table(columns=["prompt", "completion", "reward"])
        table.add_data("What is 17 + 4?", "21" if random.random() < score else "22", score)
        wandb.log({"completions": table, "eval/accuracy": score, "train/step": step}, commit=False)
    wandb.log({"rewards": wandb.Histogram([random.gauss(score, 0.1) for _ in range(64)])})
wandb.run.summary["best_reward"] = score
print(f"recorded {wandb.run.id}: look at it with  barograph show {wandb.run.id}")
wandb.finish()
