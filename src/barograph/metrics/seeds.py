"""Which runs differ only in the seed, from their flat configs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

SEED = re.compile(r"(?:.*_)?seeds?(?:_.*)?$", re.IGNORECASE)
LABEL = re.compile(
    r"(?:(?:wandb_|swanlab_|tracker_)?(?:project|run|exp|experiment|trial|job)(?:_?(?:name|id|group))?"
    r"|name|id|uuid|tags?|notes?|comment|timestamp|date|host(?:name)?|(?:\w+_)?(?:port|addr|address)"
    r"|(?:\w+_)?(?:out|output|log|logs|logging|save|ckpt|checkpoint|checkpoints|local|run|work|working|cache|tmp)"
    r"_?(?:dir|path|folder|file))$",
    re.IGNORECASE,
)


def is_seed(key: str) -> bool:
    """Return whether a key of a config is that of a seed: ``seed``, ``data_seed``, ``trainer.random_seed``."""
    return SEED.match(key.rpartition(".")[2]) is not None


def is_label(key: str) -> bool:
    """Return whether a key only names a run or its place: ``run_name``, ``output_dir``, ``master_port``."""
    return LABEL.match(key.rpartition(".")[2]) is not None


def seed_of(config: Mapping[str, Any]) -> str | None:
    """Return the seeds in a flat config as one text; None if it has none."""
    found = [f"{config[key]}" for key in sorted(config) if is_seed(key)]
    return " ".join(found) or None


def setting_digest(config: Mapping[str, Any]) -> str | None:
    """Return a digest of everything in a flat config that is no seed and no label; None if nothing is left.

    Runs with the same digest differ only in the seed.
    """
    setting = sorted((key, value) for key, value in config.items() if not is_seed(key) and not is_label(key))
    if not setting:
        return None
    return blake2b(json.dumps(setting, default=str).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
