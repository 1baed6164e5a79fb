"""Tests that secrets are redacted in everything that is stored, printed or sent, and harmless values are not."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import windsock
from windsock.redaction import REDACTED, Redactor, is_secret_key

SECRET_KEYS = [
    "api_key", "API_KEY", "apikey", "apiKey", "wandb_api_key", "wandb-api-key", "OPENAI_API_KEY", "token", "hf_token",
    "access_token", "accessToken", "auth_token", "password", "db_password", "passwd", "secret", "client_secret",
    "credentials", "aws_credentials", "login_kwargs", "aws_secret_access_key", "private_key", "HF_TOKEN",
]  # fmt: skip
HARMLESS_KEYS = [
    "eos_token", "pad_token", "bos_token", "tokenizer", "max_tokens", "max_new_tokens", "eos_token_id", "image_token",
    "tokens", "num_tokens_per_batch", "token_level_rewards", "loss_per_token", "per_token", "stop_token", "keys", "key",
    "tokenizer_path", "secretary", "monkey", "special_token", "mask_token", "use_api", "password_length_reward_weight",
]  # fmt: skip


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_keys_of_secrets_are_recognised(key: str):
    """In any spelling: snake, camel, kebab, upper case, with a prefix."""
    assert is_secret_key(key, "abc123")


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_keys_that_only_look_alike_are_left_alone(key: str):
    """Special tokens, token counts and tokenizers are not secrets."""
    assert not is_secret_key(key, "abc123")


@pytest.mark.parametrize("value", [0.5, 3, True, None, "<image>", "[MASK]", "<|im_end|>"])
def test_numbers_and_markers_under_a_token_key_are_no_secrets(value: object):
    """They are not credentials, and are shown."""
    assert not is_secret_key("my_token", value)


@pytest.mark.parametrize(
    "text",
    ["Bearer abcdefgh12345678", "hf_abcdefghijklmnopqrstuv", "sk-abcdefghijklmnop1234", "ghp_abcdefghijklmnop1234",
     "AKIAABCDEFGHIJKLMNOP", "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4"],
)  # fmt: skip
def test_values_that_look_like_secrets_are_redacted_under_any_key(text: str):
    """A key in an unexpected place is not stored."""
    assert text not in str(Redactor().redact({"note": f"use {text} please"}))


def test_a_password_in_a_url_is_redacted():
    """The rest of the URL stays readable."""
    assert Redactor().redact_text("postgres://bob:hunter2@db/x") == f"postgres://bob:{REDACTED}@db/x"


def test_a_known_secret_is_redacted_everywhere():
    """The value of an api_key is also redacted in texts that repeat it."""
    redactor = Redactor()
    redactor.redact({"tracker_kwargs": {"api_key": "q7w8e9r0t1"}})
    assert redactor.redact_text("401 for q7w8e9r0t1") == f"401 for {REDACTED}"


def test_a_command_line_loses_its_secrets_only():
    """Options in the forms of Hydra, argparse and plain assignments."""
    line = [
        "train.py",
        "--api_key",
        "zzz111zzz",
        "tracker_kwargs.api_key=yyy222yyy",
        "--lr",
        "1e-6",
        "--eos_token=</s>",
    ]
    assert Redactor().command_line(line) == [
        "train.py", "--api_key", REDACTED, f"tracker_kwargs.api_key={REDACTED}", "--lr", "1e-6", "--eos_token=</s>",
    ]  # fmt: skip


SCRIPT = """
import sys, windsock
config = {"login_kwargs": {"api_key": "S3CR3Tfour"}, "model": {"hf_token": "S3CR3Tfive"}}
run = windsock.init("config.yaml", config=config)
run.log({"loss": 1.0, "bad": "S3CR3Tone"}, step=0)
run.update_config({"db": {"password": "S3CR3Tsix"}, "max_tokens": 512})
print(repr(run), dict(run.config))
raise RuntimeError("server said no to S3CR3Tone and S3CR3Tsix")
"""
YAML = """
exp_name: sokoban
eos_token: "<|im_end|>"
tokenizer: qwen
track_with: [stdout, jsonl, keyed]
tracker_kwargs:
  keyed: {api_key: S3CR3Tone}
actor: {pad_token: "<pad>", credentials: S3CR3Ttwo, header: "Bearer S3CR3Tthree"}
"""
PLUGIN = """
class Keyed:
    in_process = True
    def __init__(self, api_key): self.key = api_key
    def start(self, info, config, folder): assert self.key == "S3CR3Tone"
    def log(self, rows): pass
    def finish(self, status): pass
"""


def test_nothing_that_a_run_writes_or_prints_contains_a_secret(tmp_path: Path):
    """Everything below the run directory and all output are searched; harmless values are unchanged."""
    (tmp_path / "config.yaml").write_text(YAML)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "keyed.py").write_text(PLUGIN)
    distribution = tmp_path / "keyed-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: keyed\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[windsock.trackers]\nkeyed = keyed:Keyed\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WINDSOCK_DIR": str(tmp_path / "runs")}
    done = subprocess.run(
        [sys.executable, "train.py", "--wandb.api_key=S3CR3Tseven"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr.replace("RuntimeError: server said no to S3CR3Tone and S3CR3Tsix", "")
    printed = printed.replace('raise RuntimeError("server said no to S3CR3Tone and S3CR3Tsix")', "")  # Python's own
    assert "S3CR3T" not in printed
    written = b"".join(file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file())
    assert b"S3CR3T" not in written
    view = windsock.open(dir=tmp_path / "runs")
    assert view.status.word == "crashed"
    assert view.status.reason == f"RuntimeError: server said no to {REDACTED} and {REDACTED}"
    config = view.config
    assert (config["eos_token"], config["tokenizer"], config["max_tokens"]) == ("<|im_end|>", "qwen", 512)
    assert config["actor"]["pad_token"] == "<pad>"
    assert config["tracker_kwargs"] == {"keyed": {"api_key": REDACTED}}
    assert view.environment["command"][-1] == f"--wandb.api_key={REDACTED}"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        from windsock.cli import main

        main(["show", str(view.path), "--all"])
    assert "S3CR3T" not in shown.getvalue()
