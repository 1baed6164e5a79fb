"""veRL's metrics, by its own functions, loaded from a folder that has the package's files.

Only the files that compute metrics and losses are executed. What else they import (veRL's other modules, ray,
tensordict, transformers, …) is replaced by empty classes while they are loaded, so that none of it must be installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

EXECUTED = (
    "verl.trainer.ppo.core_algos",
    "verl.trainer.ppo.metric_utils",
    "verl.utils.import_utils",
    "verl.utils.metric",
    "verl.utils.metric.utils",
    "verl.utils.torch_functional",
    "verl.workers.utils.losses",
)
REPLACED = ("verl", "codetiming", "omegaconf", "ray", "tensordict", "transformers")
SAME_MEANING = {
    **{f"critic/score/{stat}": f"reward/score_not_aborted/{stat}" for stat in ("mean", "max", "min")},
    **{f"critic/rewards/{stat}": f"reward/shaped_not_aborted/{stat}" for stat in ("mean", "max", "min")},
    **{
        f"critic/{name}/{stat}": f"critic/{name}/{stat}"
        for name in ("advantages", "returns", "values")
        for stat in ("mean", "max", "min")
    },
    **{f"response_length/{stat}": f"tokens/response_length/{stat}" for stat in ("mean", "max", "min")},
    "response_length/clip_ratio": "tokens/response_truncated",
    "response/aborted_ratio": "tokens/aborted",
    "critic/vf_explained_var": "value/explained_variance",
    "actor/pg_loss": "actor/pg_loss",
    "critic/vf_loss": "critic/loss",
}
"""veRL's names to barograph's, where both have one value for a step, however it is cut into micro-batches."""
SAME_MEANING_OF_ONE_BATCH = {
    "actor/pg_clipfrac": "actor/clipfrac",
    "actor/ppo_kl": "actor/policykl_k1",
    "actor/pg_clipfrac_lower": "policy/clip_fraction/dual",
    "critic/vf_clipfrac": "critic/clipfrac",
    "critic/vpred_mean": "critic/vpred",
}
"""Likewise, of one batch only: veRL averages these over micro-batches, whatever the numbers of their tokens."""


class Replaced(ModuleType):
    """A module that has every name; each is an empty class."""

    __path__: list[str] = []  # noqa: RUF012 - a package: its modules can be imported too

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class VerlFinder(MetaPathFinder, Loader):
    """Finds the executed modules in a folder, and an empty one for each that is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module comes from."""
        if name in EXECUTED:
            place = self._folder.joinpath(*name.split("."))
            package = place / "__init__.py"
            return spec_from_file_location(name, package if package.exists() else place.with_suffix(".py"))
        if name.partition(".")[0] in REPLACED:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that has every name."""
        return Replaced(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is empty."""


class Fields(dict[str, Any]):
    """The few methods of a TensorDict that veRL's losses call, of tensors that are padded already."""

    def select(self, *names: str) -> Fields:
        """Return some of the fields."""
        return Fields({name: self[name] for name in names})

    def to_padded_tensor(self) -> Fields:
        """Return the fields as they are."""
        return self


class Config(SimpleNamespace):
    """A config of veRL."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default."""
        return getattr(self, name, default)


def _modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in REPLACED}


def load(folder: Path) -> tuple[ModuleType, ModuleType, ModuleType]:
    """Return veRL's modules of the data metrics, of the losses and of the reduction of metrics."""
    if not (folder / "verl" / "trainer").is_dir():
        raise SystemExit(f"{folder} has no verl/trainer: pip install --no-deps --target {folder} verl==0.9.1")
    before = _modules()
    for name in before:
        del sys.modules[name]
    finder = VerlFinder(folder)
    sys.meta_path.insert(0, finder)
    try:
        names = ("verl.trainer.ppo.metric_utils", "verl.workers.utils.losses", "verl.utils.metric")
        metrics, losses, reduction = map(importlib.import_module, names)
    finally:
        sys.meta_path.remove(finder)
        for name in _modules():
            del sys.modules[name]
        sys.modules.update(before)
    losses.no_padding_2_padding = lambda values, data: values  # type: ignore[attr-defined]
    return metrics, losses, reduction


class Verl:
    """The metrics of veRL's trainer, actor and critic for batches of this benchmark."""

    def __init__(self, folder: Path, clip: float, dual_clip: float, value_clip: float) -> None:
        self._metrics, self._losses, self._reduction = load(folder)
        self.version = next((path.name.split("-")[1] for path in folder.glob("verl-*.dist-info")), "").removesuffix(
            ".dist"
        )
        shared = {"loss_agg_mode": "seq-mean-token-mean", "loss_scale_factor": None}
        self._actor = Config(
            clip_ratio=clip, clip_ratio_low=None, clip_ratio_high=None, clip_ratio_c=dual_clip, entropy_coeff=0.0,
            use_kl_loss=True, kl_loss_type="low_var_kl", kl_loss_coef=0.001, policy_loss={"loss_mode": "vanilla"},
            global_batch_info={}, **shared,
        )  # fmt: skip
        self._critic = Config(cliprange_value=value_clip, **shared)

    def trainer_batch(self, data: dict[str, Any]) -> Any:
        """Return a batch as its trainer has it: with prompts, and with scores at the last tokens."""
        mask = data["response_mask"]
        rows, width = mask.shape
        ends = mask.sum(1, keepdim=True) - 1
        prompts = torch.zeros(rows, 512, dtype=torch.int64, device=mask.device)
        arrays = {name: data[name] for name in ("advantages", "returns", "response_mask")}
        arrays |= {
            "token_level_scores": torch.zeros(rows, width, device=mask.device).scatter_(
                1, ends, data["scores"][:, None]
            ),
            "token_level_rewards": data["rewards"],
            "values": data["old_values"],
            "prompts": prompts,
            "responses": data["actions"],
            "attention_mask": torch.cat((torch.ones_like(prompts), mask.long()), 1),
        }
        return SimpleNamespace(batch=arrays, non_tensor_batch={})

    def worker_batch(self, data: dict[str, Any], sequences: int, tokens: int) -> tuple[Fields, Fields]:
        """Return a micro-batch as its workers have it, and the outputs of the models; the sizes are the step's."""
        names = {"response_mask": "response_mask", "old_log_probs": "old_log_probs", "advantages": "advantages",
                 "ref_log_prob": "ref_log_probs", "values": "old_values", "returns": "returns"}  # fmt: skip
        fields = Fields({name: data[ours] for name, ours in names.items()})
        fields |= {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": sequences}
        return fields, Fields({name: data[name] for name in ("log_probs", "entropy", "values")})

    def data(self, batch: Any) -> dict[str, float]:
        """Return the metrics of the trainer."""
        return dict(self._metrics.compute_data_metrics(batch))

    def actor(self, micros: Sequence[tuple[Fields, Fields]]) -> dict[str, float]:
        """Return the metrics of the actor's loss."""
        return self._reduced([self._losses.ppo_loss(self._actor, output, fields)[1] for fields, output in micros])

    def critic(self, micros: Sequence[tuple[Fields, Fields]]) -> dict[str, float]:
        """Return the metrics of the critic's loss."""
        return self._reduced([self._losses.value_loss(self._critic, output, fields)[1] for fields, output in micros])

    def _reduced(self, found: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Reduce the metrics of micro-batches as the workers do."""
        kept: dict[str, Any] = {}
        for metrics in found:
            for name, value in metrics.items():
                if name not in kept:
                    kept[name] = value.init_list() if isinstance(value, self._reduction.Metric) else []
                kept[name].append(value)
        return dict(self._reduction.reduce_metrics(kept))
