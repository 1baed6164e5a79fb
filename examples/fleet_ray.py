"""Which configs collapse, and when? The question of fleet_duckdb.py on many machines: python fleet_ray.py FLEET KEY

FLEET is what ``barograph export DIR --to parquet --partition project,run -o FLEET`` has written, on a disk that all
nodes see or in an object store; KEY is a setting, such as actor.lr. The second answer reads the values, run by run.
"""

import logging
import sys
from typing import Any

import numpy as np
import pandas as pd
import ray
from ray.data.datasource.partitioning import Partitioning
from ray.data.expressions import col

RUN = ["project", "run"]
WINDOW = 20  # steps that the mean is taken over
LOST = 0.5  # share of its best reward that a run has lost when it counts as collapsed
REWARDS = ["reward/score/mean", "reward/score_not_aborted/mean"]


def table(fleet: str, name: str, columns: list[str]) -> ray.data.Dataset:
    """Return some columns of a table; those in the paths of its files are added."""
    keys = RUN if name in ("values", "phases") else ["project"]
    found = ray.data.read_parquet(f"{fleet}/{name}", partitioning=Partitioning("hive", field_names=keys))
    return found.select_columns([*RUN, *columns])


def by_findings(fleet: str, key: str) -> pd.DataFrame:
    """Return for each value of a setting in how many runs the doctor found something critical, and since when."""
    configs = table(fleet, "configs", ["key", "value"]).filter(expr=col("key") == key)
    findings = table(fleet, "findings", ["severity", "state", "onset"])
    critical = findings.filter(expr=(col("severity") == "critical") & (col("state") != "past"))
    onsets = critical.to_pandas().groupby(RUN, as_index=False)["onset"].min()  # few rows: on this machine
    return summed(configs.to_pandas(), onsets)


def by_values(fleet: str, key: str) -> pd.DataFrame:
    """Return the same by the reward: a run has collapsed where it loses half of the best mean that it had."""
    configs = table(fleet, "configs", ["key", "value"]).filter(expr=col("key") == key)
    values = table(fleet, "values", ["metric", "step", "value"]).filter(expr=col("metric").is_in(REWARDS))
    partitions = 2 * int(ray.cluster_resources()["CPU"])
    # Runs in parallel, on all nodes.
    onsets = values.groupby(RUN, num_partitions=partitions).map_groups(collapse, batch_format="pandas")
    return summed(configs.to_pandas(), onsets.to_pandas().dropna())


def collapse(reward: pd.DataFrame) -> pd.DataFrame:
    """Return the step at which the mean reward of a run falls below half of its best; NaN where it does not."""
    reward = reward.sort_values("step")
    mean = reward["value"].rolling(WINDOW, min_periods=WINDOW).mean()
    lost = reward["step"][(mean < LOST * mean.cummax()) & (mean.cummax() > 0)]
    onset: Any = lost.iloc[0] if len(lost) else np.nan
    return pd.DataFrame([{**{name: reward[name].iloc[0] for name in RUN}, "onset": float(onset)}])


def summed(configs: pd.DataFrame, onsets: pd.DataFrame) -> pd.DataFrame:
    """Return runs, collapsed runs and onsets by the value of the setting."""
    runs = configs.merge(onsets[[*RUN, "onset"]], on=RUN, how="left")
    found = runs.groupby("value")["onset"].agg(runs="size", collapsed="count", median_onset="median", first="min")
    return found.assign(share=found["collapsed"] / found["runs"]).sort_values("share", ascending=False)


def main(fleet: str, key: str) -> None:
    """Print the answers."""
    ray.init(log_to_driver=False, include_dashboard=False)
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for question, answer in (("by the doctor's findings", by_findings), ("by the reward itself", by_values)):
        print(f"\nWhich configs collapse, and when, {question}? ({key})")
        print(answer(fleet, key).to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
