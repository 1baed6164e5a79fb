"""The demo's calls to barograph, apart from phases: rollouts, measured batches, samples, counts and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.explorer import Episodes
from barograph.apps.demo.frozen_lake import CHOICE, END, PROMPT_LENGTH, TOKEN_TEXTS
from barograph.apps.demo.ppo import entropy_of, exact_kl
from barograph.base.arrays import Bools, FloatsOfAnySize, Ints
from barograph.metrics.rollouts.statistics import spell
from barograph.recording.run import Run

if TYPE_CHECKING:
    from barograph.apps.demo.frozen_lake import Taskset
    from barograph.apps.demo.trainer import Experience


def token_text(ids: list[int]) -> str:
    """Return the text of token ids."""
    return "".join(f"{TOKEN_TEXTS[id]} " for id in ids)


def record_rollouts(run: Run, step: int, episodes: Episodes, tasks: Ints, config: DemoConfig) -> None:
    """Record the outcomes of a step's episodes by task."""
    gathered = run.rollouts(step)
    metrics = {"score": episodes.solved, "finished": episodes.finished, "moves": episodes.lengths}
    gathered.add_many(tasks, metrics=metrics, runs=np.tile(np.arange(config.runs), config.tasks))
    gathered.close(expected_tasks=config.tasks, expected_runs=config.runs)
    run.log({"weight_version": episodes.version})


def record_pipeline(run: Run, scores: FloatsOfAnySize, tasks: Ints, keep: Bools, seconds: float) -> None:
    """Record the effect of the filter."""
    run.pipeline(
        count=int(keep.sum()),
        rewards=scores,
        groups=tasks,
        metrics={"filtered_count": int((~keep).sum())},
        seconds={"filter": seconds},
    )


def record_experience(run: Run, e: Experience, config: DemoConfig, version: int) -> None:
    """Measure the data part of a step, and record staleness, samples, counts and shard balance."""
    episodes = e.episodes
    distances = episodes.lakes.distance[episodes.maps, episodes.starts]
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
            "domains": np.where(distances <= 3, "near", "far"),  # of the goal
            "weights": e.weights,
            "keep": e.keep,
            "ids": list(range(len(episodes))),
        },
        kl_coef=config.kl_coef,
        reward_clip=config.reward_clip,
        max_response_length=config.turns,
        max_prompt_length=PROMPT_LENGTH + 1,  # above the length of every prompt: none is truncated
        truncate=("sequence", config.largest_weight),  # as ``weights`` are
        reject=("sequence", config.smallest_weight, math.inf),  # as ``rejected`` episodes are
    )
    run.staleness(
        weight_versions=np.full(int(e.keep.sum()), episodes.version), tasks=e.tasks[e.keep], trainer_version=version
    )
    run.samples(_samples(e, config))
    tokens = episodes.token_counts
    run.count(tokens=int(tokens.sum()), samples=int(e.keep.sum()), episodes=len(episodes))
    run.shards(*_shards(tokens, config.shards))


def _samples(e: Experience, config: DemoConfig) -> dict[str, object]:
    """Return the episodes of the step as columns of samples; barograph stores the most informative ones."""
    episodes, rows = e.episodes, range(len(e.episodes))
    reasons = np.array([None, "equal scores", "small weight"])
    return {
        "id": rows,
        "prompt": [episodes.prompt_text(row) for row in rows],
        "completion": [episodes.response_text(row) for row in rows],
        "reward": e.scores,
        "advantage": e.advantages[:, 0],
        "length": episodes.lengths,
        "finish_reason": np.where(episodes.finished, "stop", "length"),
        "task": e.tasks,
        "group": e.tasks,
        "run": [row % config.runs for row in rows],
        "weight_version": episodes.version,
        "correct": episodes.solved,
        "discarded": reasons[np.where(e.keep, np.where(e.trained, 0, 2), 1)],
    }


def _shards(tokens: Ints, shards: int) -> tuple[list[float], list[float]]:
    """Return tokens per shard: in the order of the episodes, and balanced by dealing them out from long to short."""
    descending = np.sort(tokens)[::-1]
    back_and_forth = np.concatenate([np.arange(shards), np.arange(shards)[::-1]])
    shard_of = np.resize(back_and_forth, len(descending))
    before = [float(shard.sum()) for shard in np.array_split(tokens, shards)]
    return before, np.bincount(shard_of, descending, shards).tolist()


def record_policy(
    run: Run, e: Experience, rows: Ints, logits: FloatsOfAnySize, log_probs: FloatsOfAnySize, config: DemoConfig
) -> None:
    """Measure the policy part of a mini-batch; ``logits`` and ``log_probs`` have all choices of its valid tokens."""
    mask = e.episodes.mask[rows]
    chosen = log_probs[np.arange(len(log_probs)), e.episodes.choices[rows][mask]]
    run.measure(
        {
            "response_mask": mask,
            "log_probs": e.episodes.to_grid(chosen, rows),
            "entropy": e.episodes.to_grid(entropy_of(log_probs), rows),
            "exact_kl": e.episodes.to_grid(exact_kl(e.old_all[rows][mask], log_probs), rows),
            "exact_ref_kl": e.episodes.to_grid(exact_kl(log_probs, e.ref_all[rows][mask]), rows),
            "highest_logits": e.episodes.to_grid(logits.max(axis=-1), rows),
            "lowest_logits": e.episodes.to_grid(logits.min(axis=-1), rows),
            "old_log_probs": e.old[rows],
            "ref_log_probs": e.ref[rows],
            "advantages": e.advantages[rows],
            "scores": e.scores[rows],
            "weights": e.weights[rows],
            "ids": rows.tolist(),
        },
        part="policy",
        clip=config.clip,
        level=config.level,
        entropy_coef=config.entropy_coef,
        loss="token-mean",
    )


def record_value(run: Run, e: Experience, rows: Ints, values: FloatsOfAnySize, config: DemoConfig) -> None:
    """Measure the value part of a mini-batch."""
    run.measure(
        {
            "response_mask": e.episodes.mask[rows],
            "values": values,
            "old_values": e.values[rows],
            "returns": e.returns[rows],
        },
        part="value",
        value_clip=config.value_clip,
        loss="token-mean",
    )


def record_update(run: Run, statistics: Mapping[str, float]) -> None:
    """Log learning rates and gradient norms."""
    run.log({spell(id, run.info.vocabulary): value for id, value in statistics.items()})


def record_evaluation(
    trainer: Run, explorer: Run, step: int, taskset: Taskset, played: Episodes, config: DemoConfig
) -> None:
    """Record an evaluation; the one on held-out maps is also the training's validation."""
    scores = played.solved.astype(np.float64)
    tasks, runs = divmod(np.arange(len(played)), config.repeats)  # each task's runs follow each other
    detailed, prefix = taskset.detailed, taskset.prefix
    with explorer.evaluation(
        taskset.name, step, repeats=config.repeats, prefix=prefix, detailed_stats=detailed, ks=taskset.ks
    ) as gathered:
        gathered.add_many(tasks, metrics={"score": scores, "moves": played.lengths}, runs=runs)
    if taskset.name == "held_out":
        best = taskset.lakes.best_scores(played.maps, played.starts, config.turns)
        with trainer.validation(step) as validation:
            validation.add_many(scores)
        trainer.log({"val/score/of_best": scores.sum() / best.sum()})
