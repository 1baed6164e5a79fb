"""What the hooks of all frameworks share: beginning a run, and logging under the steps that a framework names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from windsock.errors import SettingsError, TrackerError
from windsock.formatting import describe_error
from windsock.run import Run
from windsock.session import init
from windsock.settings import OWN_SECTION


def begin_run(framework: Mapping[str, Any], settings: Mapping[str, Any]) -> Run:
    """Begin a run with the settings that a framework tells; the environment and ``settings`` take precedence.

    Wrong settings raise, before anything is trained. After any other failure the training goes on without a record.
    """
    try:
        return init({OWN_SECTION: framework}, **settings)
    except (SettingsError, TrackerError):
        raise
    except Exception as error:  # noqa: BLE001 - nothing may stop the training
        print(f"windsock: this training is not recorded: {describe_error(error)}", file=sys.stderr)
        return init(mode="disabled")


def record_step(run: Run, values: Mapping[str, Any], step: int | None) -> None:
    """Log numbers and texts under a step, and commit it when it is new; without a number it is the one after the last.

    What a step measures comes before what it logs: the phases after a commit are the next step's.
    """
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    run.log({name: value for name, value in values.items() if name not in texts}, step)
    for name, text in texts.items():
        run.text(name, text, step)
    if step is None or run.step is None or step > run.step:
        run.commit(step)
