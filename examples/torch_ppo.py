"""PPO on FrozenLake with tiny transformers in PyTorch, on the CPU or a GPU; the same task as ``barograph demo``.

Models are stored on the host and loaded to the device only in the phases that need them, as in trainings whose models
do not all fit. Measured values stay on the device until the step is committed.

    python examples/torch_ppo.py --steps 200
"""

import argparse
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import barograph
from barograph.apps.demo import frozen_lake


class Transformer(nn.Module):
    """A causal transformer over an episode's tokens, with an output at each decision of the policy."""

    def __init__(self, outputs: int, length: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(frozen_lake.VOCABULARY, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return outputs of shape (episodes, turns, outputs), at the prompt's end and after each move's position."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        inputs = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        return self.head(self.body(inputs, mask=mask, is_causal=True))[:, frozen_lake.PROMPT_LENGTH - 1 :: 2]


class Worker:
    """A model and its optimizer, on the device only between onload and offload."""

    def __init__(self, model: nn.Module, device: torch.device, lr: float | None = None) -> None:
        self.model, self.device, self.lr = model, device, lr
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr) if lr else None

    def onload(self) -> None:
        """Move weights and moments to the device."""
        self._move(self.device)

    def offload(self) -> None:
        """Move weights and moments to the host and free the device's memory."""
        self._move(torch.device("cpu"))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _move(self, device: torch.device) -> None:
        self.model.to(device)
        for state in self.optimizer.state.values() if self.optimizer else ():
            state.update({name: value.to(device) for name, value in state.items() if name != "step"})

    def update(self, loss: Tensor) -> Tensor:
        """Take an optimizer step; return the gradient norm before clipping."""
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return norm.detach()


class Lakes:
    """The demo's maps as tensors."""

    def __init__(self, lakes: frozen_lake.Lakes, device: torch.device) -> None:
        self.all = lakes
        self.after, self.tiles = (torch.as_tensor(array, device=device) for array in (lakes.after, lakes.tiles))


@torch.no_grad()
def play(actor: nn.Module, lakes: Lakes, maps: np.ndarray, starts: np.ndarray, turns: int) -> dict[str, Tensor]:
    """Play one episode per map and start, all in parallel."""
    device = lakes.after.device
    prompts = torch.as_tensor(lakes.all.prompts(maps, starts), device=device)
    tokens = torch.cat([prompts, prompts.new_zeros(len(maps), 2 * turns)], 1)
    chosen, mask = prompts.new_full((len(maps), turns), frozen_lake.END), torch.zeros(len(maps), turns, device=device)
    log_probs = torch.zeros_like(mask)
    number, here = torch.as_tensor(maps, device=device), torch.as_tensor(starts, device=device)
    going = torch.ones(len(maps), dtype=torch.bool, device=device)
    for turn in range(turns):
        place = frozen_lake.PROMPT_LENGTH + 2 * turn
        all_log_probs = actor(tokens[:, :place])[:, -1].log_softmax(-1)
        choice = torch.multinomial(all_log_probs.exp(), 1)[:, 0]
        log_probs[:, turn] = all_log_probs.gather(-1, choice[:, None])[:, 0]
        chosen[:, turn], mask[:, turn] = torch.where(going, choice, frozen_lake.END), going.float()
        tokens[:, place] = torch.where(going, frozen_lake.CHOICE + choice, frozen_lake.PAD)
        going = going & (choice != frozen_lake.END)
        here = torch.where(going, lakes.after[number, here, choice.clamp(max=frozen_lake.MOVES - 1)], here)
        tokens[:, place + 1] = torch.where(going, frozen_lake.POSITION + here, frozen_lake.PAD)
    return {
        "tokens": tokens, "choices": chosen, "mask": mask, "log_probs": log_probs, "ends": here, "maps": number,
        "going": going,
    }  # fmt: skip


def prompt_text(tokens: list[int]) -> str:
    """Return the map of an episode, and its start."""
    tiles = [frozen_lake.TOKEN_TEXTS[token] for token in tokens[: frozen_lake.PROMPT_LENGTH]]
    lines = ["".join(tiles[place : place + frozen_lake.SIZE]) for place in range(0, len(tiles), frozen_lake.SIZE)]
    return "\n".join(lines)


def response_text(tokens: list[int]) -> str:
    """Return the moves of an episode."""
    return choice_text([token - frozen_lake.CHOICE for token in tokens[frozen_lake.PROMPT_LENGTH :: 2] if token])


def choice_text(choices: list[int]) -> str:
    """Return choices as text: the tokenizer of the policy's actions."""
    return "".join(f"{frozen_lake.TOKEN_TEXTS[frozen_lake.CHOICE + choice]} " for choice in choices)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, discount: float = 0.99, trace: float = 0.95) -> Tensor:
    """Return GAE advantages; 0 after the last valid token."""
    advantages, later, after = (
        torch.zeros_like(rewards),
        rewards.new_zeros(len(rewards)),
        rewards.new_zeros(len(rewards)),
    )
    for turn in reversed(range(rewards.shape[1])):
        later = (rewards[:, turn] + discount * after - values[:, turn] + discount * trace * later) * mask[:, turn]
        after = values[:, turn] * mask[:, turn]
        advantages[:, turn] = later
    return advantages


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over valid tokens."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocabulary", default="roll")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    run = barograph.init(project="examples", name="torch_ppo", config=vars(options), vocabulary=options.vocabulary)
    with run:
        Training(options, run).train()
    print(f"barograph show {run.id}")


class Training:
    """Actor, critic and reference, with their training steps."""

    CLIP, DUAL_CLIP, VALUE_CLIP, KL, ENTROPY, MOVE = 0.2, 3.0, 0.2, 0.01, 0.01, -0.01
    # Corrections of the difference between the policy that plays and the one that is trained.
    TRUNCATE, REJECT = ("sequence", 2.0), ("token", 0.5, 2.0)

    def __init__(self, options: argparse.Namespace, run: barograph.Run) -> None:
        torch.manual_seed(options.seed)
        run.tokenizer(choice_text)
        self.options, self.run, self.device = options, run, torch.device(options.device)
        self.rng = np.random.default_rng(options.seed)
        length = frozen_lake.PROMPT_LENGTH + 2 * options.turns
        self.actor = Worker(Transformer(frozen_lake.CHOICES, length, options.width), self.device, options.lr)
        self.critic = Worker(Transformer(1, length, options.width), self.device, options.lr)
        self.reference = Worker(Transformer(frozen_lake.CHOICES, length, options.width), self.device)
        self.reference.model.load_state_dict(self.actor.model.state_dict())
        self.lakes = Lakes(frozen_lake.sample_lakes(256, options.seed), self.device)
        self.held_out = Lakes(frozen_lake.sample_lakes(64, options.seed + 1_000_003, self.lakes.all), self.device)

    def train(self) -> None:
        """Run all steps."""
        for step in range(self.options.steps):
            self.step(step)
            self.run.commit(step)

    def phase(self, name: str, worker: Worker, **amounts: object) -> AbstractContextManager[object]:
        """Return a phase that loads a worker to the device, timed by the device's clock on a GPU."""
        clock = "device" if self.device.type == "cuda" else "host"
        return self.run.phase(name, onload=worker.onload, offload=worker.offload, clock=clock, **amounts)

    def step(self, step: int) -> None:
        """Explore, score the episodes, update."""
        run, options = self.run, self.options
        with run.timer("rollout"), self.phase("actor_infer/generate", self.actor):
            maps = self.rng.integers(len(self.lakes.all), size=options.tasks)
            places = np.where(
                self.lakes.all.distance[maps] > 0, self.rng.random((options.tasks, frozen_lake.CELLS)), -1
            )
            maps, starts = (np.repeat(drawn, options.runs) for drawn in (maps, places.argmax(1)))
            played = play(self.actor.model, self.lakes, maps, starts, options.turns)
        domains = np.where(self.lakes.all.distance[maps, starts] <= 3, "near", "far")
        data = self.judge(played).having(domains=domains, ids=list(range(len(maps))))
        run.measure(
            data, kl_coef=self.KL, max_response_length=options.turns, truncate=self.TRUNCATE, reject=self.REJECT
        )
        self.record_samples(played["tokens"].tolist(), data)
        data = self.corrected(data)
        norms = self.update_critic(played["tokens"], data) | self.update_actor(played["tokens"], data)
        if step % 10 == 0 or step == options.steps - 1:
            with run.timer("eval"):
                self.validate(step)
        run.log(norms | {"actor/lr": options.lr, "critic/lr": options.lr})
        run.count(tokens=int((played["tokens"] != frozen_lake.PAD).sum()), samples=len(maps), episodes=len(maps))

    def record_samples(self, episodes: list[list[int]], data: barograph.Batch) -> None:
        """Record the episodes as texts; their ids join them with the values of the tokens that are measured."""
        columns = {"reward": data.scores, "group": data.groups, "correct": data.scores > 0, "id": data.ids}
        texts = [(prompt_text(tokens), response_text(tokens)) for tokens in episodes]
        prompts, completions = zip(*texts, strict=True)
        self.run.samples({"prompt": list(prompts), "completion": list(completions), **columns})

    @torch.no_grad()
    def judge(self, played: dict[str, Tensor]) -> barograph.Batch:
        """Compute log-probs, scores and values of the episodes."""
        run, tokens, choices, mask = self.run, played["tokens"][:, :-1], played["choices"], played["mask"]
        with run.timer("ref_log_probs_values_reward"):
            with self.phase("reference/compute_log_probs", self.reference):
                ref_logits = self.reference.model(tokens)
                ref = self.log_probs(ref_logits, choices)
            with run.phase("reward/compute_rewards"):
                scores = (self.lakes.tiles[played["maps"], played["ends"]] == frozen_lake.GOAL).float()
        with run.timer("old_log_probs_values"):
            with self.phase("actor_train/compute_log_probs", self.actor):
                old_logits = self.actor.model(tokens)
                old = self.log_probs(old_logits, choices)
            with self.phase("critic/compute_values", self.critic):
                values = self.critic.model(tokens)[..., 0]
        with run.timer("adv"):
            rewards = (self.MOVE - self.KL * (old - ref)) * mask
            last = mask.sum(1).long() - 1
            rewards[torch.arange(len(last), device=self.device), last] += scores
            raw = gae(rewards, values, mask)
            mean = masked_mean(raw, mask)
            advantages = (raw - mean) / (masked_mean((raw - mean) ** 2, mask).sqrt() + 1e-8)
        groups = torch.arange(self.options.tasks, device=self.device).repeat_interleave(self.options.runs)
        return barograph.Batch(
            response_mask=mask, actions=choices, eos_ids=[frozen_lake.END], finished=~played["going"],
            old_logits=old_logits, old_log_probs=old, ref_logits=ref_logits, ref_log_probs=ref,
            rollout_log_probs=played["log_probs"], old_values=values, rewards=rewards, advantages=advantages,
            raw_advantages=raw, returns=raw + values, scores=scores, groups=groups,
            prompt_lengths=torch.full_like(groups, frozen_lake.PROMPT_LENGTH),
        )  # fmt: skip

    def corrected(self, data: barograph.Batch) -> barograph.Batch:
        """Return the batch with weights of the episodes, and without the tokens that are rejected."""
        (_, cap), (_, low, high) = self.TRUNCATE, self.REJECT
        drift = (data.old_log_probs - data.rollout_log_probs) * data.response_mask
        ratio = drift.exp()
        return data.having(weights=drift.sum(1).exp().clamp(max=cap), keep=(ratio >= low) & (ratio <= high))

    @staticmethod
    def log_probs(logits: Tensor, choices: Tensor) -> Tensor:
        """Return the log-prob of each choice."""
        return logits.log_softmax(-1).gather(-1, choices[..., None])[..., 0]

    def micro_batches(self, data: barograph.Batch) -> list[tuple[Tensor, dict[str, Any]]]:
        """Return the rows of each micro-batch of all epochs, with the batch's arrays at them."""
        found = []
        kept = {name: getattr(data, name) for name in data.given - {"eos_ids", "domains", "ids"}}
        for _ in range(self.options.epochs):
            order = self.rng.permutation(data.sequences)
            for ids in np.array_split(order, self.options.micro_batches):
                rows = torch.as_tensor(ids, device=self.device)
                found.append((rows, {name: array[rows] for name, array in kept.items()} | {"ids": ids.tolist()}))
        return found

    def update_critic(self, tokens: Tensor, data: barograph.Batch) -> dict[str, Tensor]:
        """Train the critic on the returns."""
        count = data.response_mask.sum() * self.options.epochs
        with self.phase("critic/train_step", self.critic, tokens=count):
            for rows, batch in self.micro_batches(data):
                values = self.critic.model(tokens[rows, :-1])[..., 0]
                old, returns, mask = batch["old_values"], batch["returns"], batch["response_mask"] * batch["keep"]
                limited = old + (values - old).clamp(-self.VALUE_CLIP, self.VALUE_CLIP)
                loss = masked_mean(torch.maximum((values - returns) ** 2, (limited - returns) ** 2), mask) / 2
                norm = self.critic.update(loss)
                self.run.measure(batch | {"values": values}, "value", value_clip=self.VALUE_CLIP, loss="token-mean")
        return {"critic/grad_norm": norm}

    def update_actor(self, tokens: Tensor, data: barograph.Batch) -> dict[str, Tensor]:
        """Train the policy on the advantages."""
        count = data.response_mask.sum() * self.options.epochs
        with self.phase("actor_train/train_step", self.actor, tokens={"trained": count}):
            for rows, batch in self.micro_batches(data):
                logits = self.actor.model(tokens[rows, :-1])
                log_probs, advantages = self.log_probs(logits, batch["actions"]), batch["advantages"]
                ratio = (log_probs - batch["old_log_probs"]).exp()
                gain = torch.minimum(ratio * advantages, ratio.clamp(1 - self.CLIP, 1 + self.CLIP) * advantages)
                gain = torch.where(advantages < 0, torch.maximum(gain, self.DUAL_CLIP * advantages), gain)
                entropy = torch.distributions.Categorical(logits=logits).entropy()
                objective = batch["weights"][:, None] * gain + self.ENTROPY * entropy
                norm = self.actor.update(-masked_mean(objective, batch["response_mask"] * batch["keep"]))
                self.run.measure(
                    batch | {"logits": logits}, "policy", clip=self.CLIP, dual_clip=self.DUAL_CLIP,
                    entropy_coef=self.ENTROPY, loss="token-mean",
                )  # fmt: skip
        return {"actor/grad_norm": norm}

    def validate(self, step: int) -> None:
        """Evaluate on held-out maps, from the first cell."""
        self.actor.onload()
        maps = np.arange(len(self.held_out.all))
        played = play(self.actor.model, self.held_out, maps, np.zeros_like(maps), self.options.turns)
        self.actor.offload()
        solved = self.held_out.tiles[played["maps"], played["ends"]] == frozen_lake.GOAL
        with self.run.validation(step) as validation:
            validation.add_many(solved.float().cpu().numpy())


if __name__ == "__main__":
    main()
