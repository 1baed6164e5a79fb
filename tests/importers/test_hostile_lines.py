"""No line hangs a reader, whatever is in it: the time grows with its length, and no faster."""

from pathlib import Path

import pytest

from barograph.importers.formats import format_of
from barograph.importers.reading.log import Log, look_at
from barograph.importers.recorder import Recorder

PIECES = [
    b"9", b"a", b"A", b".", b"A.", b" ", b"\r", b"'", b'"', b"(", b")", b"[", b"{", b"{'", b"{'a': ", b"{'a': 1}",
    b"{'a': x}", b"}", b"|", b"|a", b" - ", b"a - ", b"a:1 - ", b":", b"=", b"a=1, ", b"%|", b"1%|", b"1%|a| 1/2 [",
    b"\x1b[", b"\x1b]", b"step:1 - ", b"&", b"step: 1|", b"epoch: 0|step: 1|", b"A: 1, ", b"A: ", b"[PID 1] ",
    b"np.float64(", b"1_", b"\xff", b"\0", b"-",
]  # fmt: skip
BEGINNINGS = {
    "verl_console": [b"step:1 - ", b"{'a': {", b"'Initial validation metrics: ", b"Total training steps: "],
    "verl_file": [b'{"step": 1, "data": {'],
    "roll_console": [b"metrics_tag: ", b'[2025-03-22 23:18:51] [a.py (1)] [INFO] [A][PID 7] {"', b"pipeline step "],
    "dict_lines": [b"{'loss': 1, ", b"\r1%|", b"logging_steps", b"Step 1 {'loss': 1}"],
    "deepspeed_chat": [
        b"epoch: 0|step: 0|", b"average reward score: ", b"|E2E latency=", b"End-to-End => Latency: ", b"cmd = --",
        b"global_step=1, ", b"step=1, skipped=1, lr=[1", b"exits with return code = ",
    ],
}  # fmt: skip
SIZE = 200_000


@pytest.mark.parametrize("name", BEGINNINGS)
def test_no_line_hangs(name: str, tmp_path: Path):
    """Lines of one repeated piece, after each beginning that is looked at, and after a traceback."""
    lines = [b"epoch: 0|step: 0|act_loss: 1.0", b"Traceback (most recent call last):"]
    for beginning in BEGINNINGS[name]:
        lines += [beginning + piece * (SIZE // len(piece)) for piece in PIECES]
    path = tmp_path / "a.log"
    path.write_bytes(b"\n".join(lines))
    (tmp_path / "journal").mkdir()
    out = Recorder(tmp_path / "journal", {}, {"path": "", "format": "", "title": ""}, 1.0)
    seen = look_at(path)
    assert seen is not None
    format = format_of(name)
    assert format.matches is not None
    format.matches(seen)
    reader = format.reader(Log(path, name), {})
    reader.facts()
    reader.read(out)
    out.finish(None)
    assert not [one for one in out.state.get("unread", []) if one["reason"].startswith("cannot be read")]
