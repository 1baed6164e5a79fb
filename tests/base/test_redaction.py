"""Tests that secrets are redacted in everything that is stored, printed or sent, and harmless values are not."""

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barograph
from barograph.base.redaction import MAX_TEXT, REDACTED, Redactor, redact_forms
from barograph.base.secrets import RULES, is_secret_key
from secrets_to_plant import BY_KEY, BY_VALUE, COMMANDS, HARMLESS, IN_TEXT, PEM_BODY

SECRET_KEYS = [
    "api_key", "API_KEY", "apikey", "apiKey", "wandb_api_key", "wandb-api-key", "OPENAI_API_KEY", "token", "hf_token",
    "access_token", "accessToken", "auth_token", "password", "db_password", "passwd", "secret", "client_secret",
    "credentials", "aws_credentials", "login_kwargs", "aws_secret_access_key", "private_key", "HF_TOKEN",
]  # fmt: skip
HARMLESS_KEYS = [
    "eos_token", "pad_token", "bos_token", "tokenizer", "max_tokens", "max_new_tokens", "eos_token_id", "image_token",
    "num_tokens_per_batch", "token_level_rewards", "loss_per_token", "per_token", "stop_token", "keys", "key",
    "tokenizer_path", "secretary", "monkey", "special_token", "mask_token", "use_api", "password_length_reward_weight",
]  # fmt: skip


def test_keys_of_secrets_are_recognised():
    """In any spelling: snake, camel, kebab, upper case, with a prefix."""
    assert [key for key in SECRET_KEYS if not is_secret_key(key, "abc123")] == []


def test_keys_that_only_look_alike_are_left_alone():
    """Special tokens, token counts and tokenizers are not secrets."""
    assert [key for key in HARMLESS_KEYS if is_secret_key(key, "abc123")] == []


def test_numbers_and_markers_under_a_token_key_are_no_secrets():
    """They are not credentials, and are shown."""
    values = [0.5, 3, True, None, "<image>", "[MASK]", "<|im_end|>"]
    assert [value for value in values if is_secret_key("my_token", value)] == []


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


def test_a_known_secret_is_long_enough_to_be_no_word():
    """A shorter one under a secret key is redacted there, but not wherever its letters stand."""
    for secret, is_found in (("q7wxyz", True), ("q7wxy", False)):
        redactor = Redactor()
        assert redactor.redact({"password": secret}) == {"password": REDACTED}
        assert (secret not in redactor.redact_text(f"an a{secret}b")) == is_found


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
import sys, barograph
config = {"login_kwargs": {"api_key": "S3CR3Tfour"}, "model": {"hf_token": "S3CR3Tfive"}}
run = barograph.init("config.yaml", config=config)
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
    (distribution / "entry_points.txt").write_text("[barograph.trackers]\nkeyed = keyed:Keyed\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BAROGRAPH_DIR": str(tmp_path / "runs")}
    done = subprocess.run(
        [sys.executable, "train.py", "--wandb.api_key=S3CR3Tseven"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr.replace("RuntimeError: server said no to S3CR3Tone and S3CR3Tsix", "")
    printed = printed.replace('raise RuntimeError("server said no to S3CR3Tone and S3CR3Tsix")', "")  # Python's own
    assert "S3CR3T" not in printed
    written = b"".join(file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file())
    assert b"S3CR3T" not in written
    view = barograph.open(dir=tmp_path / "runs")
    assert view.status.word == "crashed"
    assert view.status.reason == f"RuntimeError: server said no to {REDACTED} and {REDACTED}"
    config = view.config
    assert (config["eos_token"], config["tokenizer"], config["max_tokens"]) == ("<|im_end|>", "qwen", 512)
    assert config["actor"]["pad_token"] == "<pad>"
    assert config["tracker_kwargs"] == {"keyed": {"api_key": REDACTED}}
    assert view.environment["command"][-1] == f"--wandb.api_key={REDACTED}"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        from barograph.apps.cli import main

        main(["show", str(view.path), "--all"])
    assert "S3CR3T" not in shown.getvalue()


def texts_in(secret: object) -> list[str]:
    if isinstance(secret, str):
        return [PEM_BODY if PEM_BODY in secret else secret]
    inner = secret.values() if isinstance(secret, dict) else secret
    return [text for value in inner for text in texts_in(value) if text != "bob"]


def test_no_secret_under_a_key_leaks():
    """Neither in the config, nor in an error that repeats it."""
    for key, secret in BY_KEY:
        redactor = Redactor()
        shown = str(redactor.redact({"section": [{key: secret}]}))
        for text in texts_in(secret):
            assert text not in shown, key
            assert text not in redactor.redact_text(f"HTTPError: 401 for {text}"), key


def test_no_secret_of_a_known_form_leaks():
    """Neither under a harmless key, nor in a command line, an error or its repr."""
    for secret in BY_VALUE:
        [kept] = texts_in(secret)
        shown = [Redactor().redact({"note": secret}), Redactor().command_line(["train.py", f"--note={secret}", secret])]
        for text in (secret, repr(secret)):
            shown.append(Redactor().redact_text(f"RuntimeError: no access with {text}, really"))
        assert kept not in str(shown)


def test_no_secret_inside_a_text_leaks():
    """In URLs, assignments, JSON, headers and commands."""
    for text, secret in IN_TEXT:
        shown = [Redactor().redact({"note": text}), Redactor().command_line(["train.py", text])]
        shown += [Redactor().redact_text(f"RuntimeError: failed: {text}\nmore")]
        assert secret not in str(shown), text


def test_no_secret_in_a_command_leaks():
    """Neither in the recorded command line, nor in a config that contains a command; other arguments stay."""
    for arguments, secret in COMMANDS:
        line = Redactor().command_line(["train.py", "--lr", "1e-6", *arguments, "--steps", "2"])
        assert secret not in str(line), arguments
        assert (line[:3], line[-2:]) == (["train.py", "--lr", "1e-6"], ["--steps", "2"])
        assert secret not in str(Redactor().redact({"entrypoint": arguments})), arguments


def test_harmless_entries_of_configs_are_kept():
    """Counts, special tokens, hashes, ids, paths and model names are shown as they are."""
    assert [(key, value) for key, value in HARMLESS if Redactor().redact({key: value}) != {key: value}] == []


def test_enough_secrets_and_harmless_entries_are_tested():
    """At least 111 secrets and 60 harmless entries, and every rule names its source."""
    assert len(BY_KEY) + len(BY_VALUE) + len(IN_TEXT) + len(COMMANDS) >= 111
    assert len(HARMLESS) >= 60
    assert all(rule.source and all(word == word.lower() for word in rule.words) for rule in RULES)


def test_a_named_value_is_redacted():
    """As Kubernetes lists environment variables."""
    assert Redactor().redact({"env": [{"name": "WANDB_API_KEY", "value": "q7w8e9r0t1"}]}) == {
        "env": [{"name": "WANDB_API_KEY", "value": REDACTED}]
    }


def test_a_token_in_the_git_remote_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clone with a token as the user name has it in its configuration."""
    from barograph.base.process.identity import describe_environment

    (tmp_path / "file").write_text("")
    for arguments in (
        ["init", "-q"], ["add", "file"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ["remote", "add", "origin", "https://s3cr3tt0ken99@example.com/a/b.git"],
    ):  # fmt: skip
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, timeout=20)
    monkeypatch.chdir(tmp_path)
    assert describe_environment(Redactor())["git"]["origin"] == f"https://{REDACTED}@example.com/a/b.git"


LONG_PIECES = [
    "haha",
    "a=",
    "a:",
    "token=",
    "tokens=a,tokens=)",
    "auth=none,",
    "://a:",
    "http://a:b",
    "-eyJ",
    "-eyJaaaaaaaa.",
    "-SG.",
    'a="',
    'a=\\"',
    "--a ",
    '--a "',
    "?key=",
    "&a=",
    "Cookie: ",
    "my_key='",
    "sk-",
    "-----BEGIN PRIVATE KEY-----",
    "\\",
]


def seconds(text: str) -> float:
    found = []
    for _ in range(3):
        start = time.process_time()
        redact_forms(text)
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.parametrize("piece", LONG_PIECES)
def test_the_time_is_linear_in_the_length_of_a_text(piece: str):
    """Four times the length takes less than eight times as long; a quadratic pattern takes sixteen times as long."""
    short, long = (piece * (length // len(piece)) for length in (20_000, 80_000))
    assert seconds(long) < 8 * seconds(short) + 0.02


def test_a_long_text_is_cut_and_says_so():
    """The bound is on what is stored; half a secret at the cut is not left."""
    text = Redactor().redact_text("x " * 50_000)
    assert len(text) < MAX_TEXT + 100
    assert text.endswith("… (cut: the text has 100000 characters)")
    redactor = Redactor()
    redactor.redact({"password": "hunter2-" * 20})
    for place in range(MAX_TEXT - 200, MAX_TEXT + 6_000, 50):
        assert "hunter2" not in redactor.redact_text("." * place + "hunter2-" * 20 + "." * 9_000)


LONG_SCRIPT = """
import barograph
run = barograph.init(dir={dir!r}, config={{f"text{{i}}": "a" * 20_000 for i in range(20)}})
run.log({{"a" * 20_000: None}})
raise ValueError("haha" * 25_000)
"""


def test_long_texts_do_not_delay_the_end_of_a_process(tmp_path: Path):
    """A long exception, long texts in the config, and a long name of a skipped value."""
    done = subprocess.run(
        [sys.executable, "-c", LONG_SCRIPT.format(dir=str(tmp_path))],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "ValueError: hahahaha" in done.stderr
    assert barograph.open(dir=tmp_path).status.reason.startswith("ValueError: hahahaha")


def test_a_long_error_of_a_tracker_is_cut(tmp_path: Path):
    """An answer of 100 kB, as an HTML page of a proxy, is described without delay."""
    from barograph.delivery.relay.delivery import Delivery

    delivery = Delivery(tmp_path, "jsonl", {"api_key": "hunter2-abc"}, lambda: None, keep=False)
    text = delivery._describe(ValueError("hunter2-abc " + "a" * 100_000))
    assert text.startswith(f"ValueError: {REDACTED} aaa")
    assert len(text) < MAX_TEXT + 100


PLANTED_SCRIPT = """
import barograph
from secrets_to_plant import BY_KEY, BY_VALUE, IN_TEXT
config = {f"part{i}": {key: secret} for i, (key, secret) in enumerate(BY_KEY)}
run = barograph.init(config=config, track_with=["stdout"])
run.update_config({f"value{i}": secret for i, secret in enumerate(BY_VALUE)})
run.update_config({"notes": [text for text, _ in IN_TEXT]})
raise RuntimeError("\\n".join([*BY_VALUE[:-1], *(text for text, _ in IN_TEXT)]))
"""


def test_no_planted_secret_is_in_the_files_of_a_run(tmp_path: Path):
    """All of them at once, through the config, the command line and an exception of a real process."""
    (tmp_path / "train.py").write_text(PLANTED_SCRIPT)
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "runs")}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    arguments = [argument for arguments, _ in COMMANDS for argument in arguments]
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "RuntimeError" in done.stderr
    view = barograph.open(dir=tmp_path / "runs")
    assert view.status.word == "crashed"
    assert view.environment["command"]
    written = b"".join(file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file()).decode("latin-1")
    secrets = [text for _, secret in BY_KEY for text in texts_in(secret)]
    secrets += [text for secret in BY_VALUE for text in texts_in(secret)]
    secrets += [secret for _, secret in [*IN_TEXT, *COMMANDS]]
    assert [secret for secret in secrets if secret in written] == []
