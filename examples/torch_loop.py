"""A torch training loop with its metrics: PPO on a toy task, in which each sequence should repeat its first token."""

import torch

import windsock

torch.manual_seed(0)
VOCABULARY, LENGTH, GROUPS, SAMPLES, CLIP = 8, 12, 16, 8, 0.2
policy = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
run = windsock.init(project="examples", name="torch_loop", config={"clip": CLIP, "lr": 3e-3})

for step in range(100):
    prompts = torch.randint(VOCABULARY, (GROUPS, 1)).repeat_interleave(SAMPLES, 0).expand(-1, LENGTH)
    with torch.no_grad():
        old = torch.distributions.Categorical(logits=policy(prompts))
        actions = old.sample()
    scores = (actions == prompts).float().mean(1)
    baseline = scores.view(GROUPS, SAMPLES).mean(1).repeat_interleave(SAMPLES)
    batch = windsock.Batch(
        response_mask=torch.ones_like(actions, dtype=torch.bool), actions=actions, scores=scores,
        old_log_probs=old.log_prob(actions), old_entropy=old.entropy(), prompt_lengths=torch.ones(len(scores)),
        advantages=(scores - baseline)[:, None].expand(-1, LENGTH),
        groups=torch.arange(GROUPS).repeat_interleave(SAMPLES),
    )  # fmt: skip
    run.measure(batch)  # the data part, once per step
    for rows in torch.randperm(len(scores)).chunk(4):
        new = torch.distributions.Categorical(logits=policy(prompts[rows]))
        log_probs = new.log_prob(actions[rows])
        ratio, advantages = (log_probs - batch.old_log_probs[rows]).exp(), batch.advantages[rows]
        loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        part = {"log_probs": log_probs, "entropy": new.entropy(), "old_log_probs": batch.old_log_probs[rows]}
        run.measure(
            {**part, "advantages": advantages, "response_mask": batch.response_mask[rows]}, part="policy", clip=CLIP
        )
    run.log({"actor/lr": optimizer.param_groups[0]["lr"]})
    run.count(tokens=actions.numel(), samples=len(scores))
    run.commit(step)
run.finish()
print(f"score {windsock.open(run.path).series('critic/score/mean').last:.2f}; windsock show {run.id}")
