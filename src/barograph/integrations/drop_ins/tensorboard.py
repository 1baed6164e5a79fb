"""The interface of TensorBoard's writer, recorded by barograph: ``from barograph.tensorboard import SummaryWriter``."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.base.scalars import histogram
from barograph.integrations.drop_ins.recorded_run import Config, NoOp, RecordedRun, begin, stand_in
from barograph.integrations.guard import unharmed

__all__ = ["SummaryWriter"]

PARENT = "runs"  # of TensorBoard's default directory


class SummaryWriter(RecordedRun):
    """A writer of torch or tensorboardX as a run, whose name is that of the directory. Several may be open.

    Values without a step are counted by name.
    """

    module = "tensorboard"

    def __init__(self, log_dir: Any = None, comment: str = "", **ignored: Any) -> None:
        log_dir = log_dir or ignored.pop("logdir", None)
        # As torch names it.
        default = f"{PARENT}/{time.strftime('%b%d_%H-%M-%S')}_{platform.node()}{comment}"
        self.log_dir = os.fspath(log_dir or default)
        parts = [part for part in Path(self.log_dir).parts if part not in (os.sep, "..")]
        name = "/".join(parts[parts.index(PARENT) + 1 :] if PARENT in parts[:-1] else parts[-1:])
        for buffering in ("max_queue", "flush_secs", "filename_suffix", "write_to_disk"):
            ignored.pop(buffering, None)
        config = {"log_dir": self.log_dir}
        run = begin("SummaryWriter", {"name": name, "config": config}, ignored)
        super().__init__(run, Config(config, run))
        self._counts: Counter[str] = Counter()

    @unharmed
    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, *args: Any, **kwargs: Any) -> None:
        """Record a number."""
        self.recorded.log({tag: scalar_value}, self._step(tag, global_step))

    @unharmed
    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Record numbers under ``main_tag/…``."""
        step = self._step(main_tag, global_step)
        self.recorded.log({f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, step)

    @unharmed
    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", *args: Any, **kwargs: Any
    ) -> None:
        """Record a histogram; ``bins`` counts where it is a number."""
        counted = histogram(values, bins) if isinstance(bins, int) else histogram(values)
        self.recorded.log({tag: counted}, self._step(tag, global_step))

    @unharmed
    def add_text(self, tag: str, text_string: str, global_step: Any = None, *args: Any, **kwargs: Any) -> None:
        """Record a text."""
        self.recorded.text(tag, text_string, self._step(tag, global_step))

    @unharmed
    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Add to the config, and record the numbers."""
        self.config.update(hparam_dict)
        self.recorded.log(dict(metric_dict), self._step("hparams", kwargs.get("global_step")))

    def flush(self) -> None:
        """Do nothing: every call has written its values."""

    def close(self) -> None:
        """End the run."""
        self.end()

    def get_logdir(self) -> str:
        """Return the directory that was given; TensorBoard's files are not written to it."""
        return self.log_dir

    def _step(self, tag: str, step: Any) -> int:
        number = self._counts[tag] if step is None else int(step)
        self._counts[tag] = max(self._counts[tag], number + 1)
        return number

    def __getattr__(self, name: str) -> NoOp:
        if name.startswith("_"):
            raise AttributeError(name)
        return NoOp(f"SummaryWriter.{name}")


def __getattr__(name: str) -> Any:
    return stand_in("tensorboard", name)
