"""What the demo tells windsock: the calls that a trainer makes beside its phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windsock.demo.explorer import Episodes
from windsock.demo.lake import CHOICE, END, PROMPT_LENGTH, Bools, Floats, Ints, Lakes, classic_lake
from windsock.demo.ppo import entropy_of, exact_kl
from windsock.demo.recipe import Recipe
from windsock.rollouts.statistics import spell
from windsock.run import Run

if TYPE_CHECKING:
    from windsock.demo.trainer import Experience

SEEN_MAPS = 16


def rollouts(run: Run, step: int, episodes: Episodes, tasks: Ints, recipe: Recipe) -> None:
    """Tell how the episodes of a step went, task by task."""
    gathered = run.rollouts(step)
    metrics = {"score": episodes.solved, "finished": episodes.finished, "moves": episodes.lengths}
    gathered.add_many(tasks, metrics=metrics, runs=np.tile(np.arange(recipe.runs), recipe.tasks))
    gathered.close(expected_tasks=recipe.tasks, expected_runs=recipe.runs)
    run.log({"weight_version": episodes.version})


def pipeline(run: Run, scores: Floats, tasks: Ints, keep: Bools, seconds: float) -> None:
    """Tell what the filter did."""
    run.pipeline(
        count=int(keep.sum()),
        rewards=scores,
        groups=tasks,
        metrics={"filtered_count": int((~keep).sum())},
        seconds={"filter": seconds},
    )


def experience(run: Run, e: Experience, recipe: Recipe, version: int) -> None:
    """Measure the data part of a step; tell which samples were drawn, show some, and count."""
    episodes = e.episodes
    run.measure(
        {
            "response_mask": episodes.mask,
            "actions": CHOICE + episodes.choices,
            "eos_ids": [CHOICE + END],
            "finished": episodes.finished,
            "prompt_lengths": np.full(len(episodes), PROMPT_LENGTH),
            "old_log_probs": e.old,
            "ref_log_probs": e.ref,
            "rollout_log_probs": episodes.log_probs,
            "old_entropy": entropy_of(e.old_all),
            "old_values": e.values,
            "rewards": e.rewards,
            "advantages": e.advantages,
            "raw_advantages": e.raw_advantages,
            "returns": e.returns,
            "scores": e.scores,
            "unclipped_rewards": e.outcomes,
            "groups": e.tasks,
            "weights": e.weights,
            "keep": e.keep,
        },
        kl_coef=recipe.kl_coef,
        reward_clip=recipe.reward_clip,
        max_response_length=recipe.turns,
        max_prompt_length=PROMPT_LENGTH + 1,  # no prompt is cut: all have the length of a map
    )
    run.staleness(
        weight_versions=np.full(int(e.keep.sum()), episodes.version), tasks=e.tasks[e.keep], trainer_version=version
    )
    run.samples(list(_samples(e, recipe)))
    tokens = episodes.token_counts
    run.count(tokens=int(tokens.sum()), samples=int(e.keep.sum()), episodes=len(episodes))
    run.shards(*_shards(tokens, recipe.shards))


def _samples(e: Experience, recipe: Recipe) -> Iterator[dict[str, object]]:
    """Yield the first groups of the step, to be read."""
    episodes = e.episodes
    for row in range(min(recipe.samples, len(episodes))):
        yield {
            "prompt": episodes.prompt_text(row),
            "completion": episodes.response_text(row),
            "reward": float(e.scores[row]),
            "advantage": float(e.advantages[row, 0]),
            "length": int(episodes.lengths[row]),
            "finish_reason": "stop" if episodes.finished[row] else "length",
            "task": int(e.tasks[row]),
            "group": int(e.tasks[row]),
            "run": row % recipe.runs,
            "weight_version": episodes.version,
        }


def _shards(tokens: Ints, shards: int) -> tuple[list[float], list[float]]:
    """Return the tokens of each shard: as the episodes come, and dealt out from the longest to the shortest."""
    dealt = np.sort(tokens)[::-1]
    back_and_forth = np.concatenate([np.arange(shards), np.arange(shards)[::-1]])
    places = np.resize(back_and_forth, len(dealt))
    before = [float(part.sum()) for part in np.array_split(tokens, shards)]
    return before, np.bincount(places, dealt, shards).tolist()


def policy_part(run: Run, e: Experience, rows: Ints, log_probs: Floats, recipe: Recipe) -> None:
    """Measure the policy part of a mini-batch; the log-probs are of every choice at its valid tokens."""
    mask = e.episodes.mask[rows]
    taken = log_probs[np.arange(len(log_probs)), e.episodes.choices[rows][mask]]
    run.measure(
        {
            "response_mask": mask,
            "log_probs": e.episodes.spread(taken, rows),
            "entropy": e.episodes.spread(entropy_of(log_probs), rows),
            "exact_kl": e.episodes.spread(exact_kl(e.old_all[rows][mask], log_probs), rows),
            "old_log_probs": e.old[rows],
            "ref_log_probs": e.ref[rows],
            "advantages": e.advantages[rows],
            "scores": e.scores[rows],
            "weights": e.weights[rows],
        },
        part="policy",
        clip=recipe.clip,
        entropy_coef=recipe.entropy_coef,
        loss="token-mean",
    )


def value_part(run: Run, e: Experience, rows: Ints, values: Floats, recipe: Recipe) -> None:
    """Measure the value part of a mini-batch."""
    run.measure(
        {
            "response_mask": e.episodes.mask[rows],
            "values": values,
            "old_values": e.values[rows],
            "returns": e.returns[rows],
        },
        part="value",
        value_clip=recipe.value_clip,
        loss="token-mean",
    )


def update(run: Run, learnt: Mapping[str, float]) -> None:
    """Log what an update used and met: learning rates, norms of gradients."""
    run.log({spell(id, run.info.vocabulary): value for id, value in learnt.items()})


@dataclass(frozen=True, slots=True)
class Taskset:
    """Tasks to evaluate on: each is a map and a start."""

    name: str
    number: int
    lakes: Lakes
    maps: Ints
    starts: Ints
    prefix: str = "eval"
    detailed: bool = False


def tasksets(trained: Lakes, held_out: Lakes) -> list[Taskset]:
    """Return what a policy is evaluated on."""
    classic = classic_lake()
    starts = np.flatnonzero(classic.distance[0] > 0)
    every, some = np.arange(len(held_out)), np.arange(min(SEEN_MAPS, len(trained)))
    return [
        Taskset("held_out", 0, held_out, every, np.zeros_like(every)),
        Taskset("seen", 1, trained, some, np.zeros_like(some), detailed=True),
        Taskset("classic", 2, classic, np.zeros_like(starts), starts, prefix="bench"),
    ]


def evaluation(trainer: Run, explorer: Run, step: int, taskset: Taskset, played: Episodes, recipe: Recipe) -> None:
    """Tell how an evaluation went; the one on held-out maps is the training's validation."""
    scores = played.solved.astype(np.float64)
    tasks, runs = divmod(np.arange(len(played)), recipe.repeats)
    detailed, prefix = taskset.detailed, taskset.prefix
    with explorer.evaluation(
        taskset.name, step, repeats=recipe.repeats, prefix=prefix, detailed_stats=detailed
    ) as gathered:
        gathered.add_many(tasks, metrics={"score": scores, "moves": played.lengths}, runs=runs)
    if taskset.name == "held_out":
        best = taskset.lakes.best_scores(played.maps, played.starts, recipe.turns)
        with trainer.validation(step) as validation:
            validation.add_many(scores)
        trainer.log({"val/score/of_best": scores.sum() / best.sum()})
