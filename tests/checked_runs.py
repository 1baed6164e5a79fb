"""Real logs, which are not part of the project: where they are, and those that people have checked by hand so far."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("BAROGRAPH_REALRUNS", "../shared/realruns"))
CHECKED = {
    "areal-a100-crashloop", "areal-a40-circuitbreaker", "areal-a40-fast", "areal-h200-89", "custom-countdown-500",
    "dschat-opt13b-ppo", "trl-countdown-480", "trl-f1sim-800", "trl-openenvhack-200", "trl-text2sql-1000",
    "trl-unslothgrpo-250", "unsloth-gemma4-2048", "unsloth-llama-fp8-kl", "unsloth-llama32-3b-500",
    "unsloth-ministral-sudoku-klspike", "unsloth-qwen3-8b-fp8-dead", "verl-agentgym-prefix-smoke",
    "verl-gsm8k-qwen2-7b-base", "verl-ppo-gettingstarted", "verl-q3b-mcore-offppl",
}  # fmt: skip
"""The runs for which the tables of the tests say what each name means and what a person finds."""
