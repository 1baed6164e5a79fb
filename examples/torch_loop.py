"""A torch training loop with its metrics: PPO on a toy task, in which each sequence should repeat its first token."""

import torch
from torch.distributions import Categorical

import barograph

torch.manual_seed(0)
VOCABULARY, LENGTH, GROUPS, SAMPLES, CLIP = 8, 12, 16, 8, 0.2
policy = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
groups = torch.arange(GROUPS).repeat_interleave(SAMPLES)
run = barograph.init(project="examples", name="torch_loop", config={"clip": CLIP, "lr": 3e-3})

for step in range(100):
    prompts = torch.randint(VOCABULARY, (GROUPS, 1))[groups].expand(-1, LENGTH)
    old = Categorical(logits=policy(prompts).detach())
    actions = old.sample()
    scores = (actions == prompts).float().mean(1)
    advantages = (scores - scores.view(GROUPS, SAMPLES).mean(1)[groups])[:, None].expand(-1, LENGTH)
    batch = barograph.Batch(
        response_mask=torch.ones_like(actions), actions=actions, scores=scores, groups=groups, advantages=advantages,
        old_log_probs=old.log_prob(actions), old_entropy=old.entropy(),
    )  # fmt: skip
    run.measure(batch)  # the data part, once per step
    for micro, prompt in zip(batch.split(4), prompts.chunk(4), strict=True):
        new = Categorical(logits=policy(prompt))
        micro = micro.having(log_probs=new.log_prob(micro.actions), entropy=new.entropy())
        ratio = (micro.log_probs - micro.old_log_probs).exp()
        gain = torch.minimum(ratio * micro.advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * micro.advantages)
        optimizer.zero_grad()
        (-gain.mean()).backward()
        optimizer.step()
        run.measure(micro, part="policy", clip=CLIP)  # for each micro-batch: nothing waits
    run.log({"actor/lr": optimizer.param_groups[0]["lr"]})
    run.count(tokens=actions.numel(), samples=len(scores))
    run.commit(step)  # merged, divided, named, written
run.finish()
print(f"score {barograph.open(run.path).series('critic/score/mean').last:.2f}; barograph show {run.id}")
