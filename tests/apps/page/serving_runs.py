"""A real server in a thread, and helpers of its tests."""

import json
import math
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from barograph.apps.page.http.connection_limits import ConnectionLimits
from barograph.apps.page.http.guard import Guard
from barograph.apps.page.http.serving import TeamOptions, bind_socket, make_server
from barograph.delivery.transfer.tokens import TokenFile

HTML = "<img src=x onerror=alert(1)>"
Serve = Callable[..., httpx.Client]


@contextmanager
def serving(
    dir: Path,
    token: str | None = None,
    host: str = "127.0.0.1",
    limits: ConnectionLimits | None = None,
    options: TeamOptions | None = None,
    verify: Any = True,
) -> Iterator[httpx.Client]:
    """Serve a directory from a thread of this process."""
    options = options or TeamOptions()
    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    tokens = TokenFile(dir) if options.ingest else None
    guard = Guard(host, port, token, False, tokens, options.proxy_parts, options.certificate is not None)
    server = make_server(dir, guard, limits=limits, options=options)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        scheme = "https" if options.certificate else "http"
        with httpx.Client(base_url=f"{scheme}://127.0.0.1:{port}", timeout=60, verify=verify) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
        assert not thread.is_alive()


def step_values(step: int) -> dict[str, float]:
    score = 1 - 0.9 ** (step / 3 + 1)
    return {
        "critic/score/mean": score,
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "actor/pg_clipfrac": 0.01,
        "actor/approxkl": math.nan if step == 13 else 0.004,
        "actor/ratio_mean": 1.0,
        "critic/kl": 50.0 if step == 17 else 0.1,
        "val/score/mean": score / 2,
        "tokens/response_length/mean": 200.0,
        "memory/actor_infer/generate/start/offload/allocated/0": 1.0,
        "memory/actor_infer/generate/end/onload/allocated/0": 3.0,
        "memory/actor_infer/generate/end/onload/max_reserved/0": 8.0,
        "memory/actor_infer/generate/end/onload/max_reserved_frac/0": 0.1,
        HTML: float(step),
        "mine/thing/mean": 1.0,
        "mine/thing/max": 2.0,
        "layer10/x": 0.0,
        "layer2/x": 0.0,
    }


def decoded(body: bytes) -> dict[str, Any]:
    """Decode series from the binary format of docs/api.md."""
    assert body[:4] == b"WSS1"
    (size,) = struct.unpack_from("<I", body, 4)
    header = json.loads(body[8 : 8 + size])
    place, arrays = 8 + size, []
    for kind, length in header["arrays"]:
        assert place % 8 == 0
        arrays.append(np.frombuffer(body, f"<{kind}", length, place))
        place += -(-arrays[-1].nbytes // 8) * 8
    assert place == len(body)
    columns = ("x", "x_end", "min", "max", "last", "count", "nonfinite")
    header["series"] = [{k: arrays[v] if k in columns else v for k, v in one.items()} for one in header["series"]]
    return dict(header)


def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true result of a condition, or fail after ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"the condition was not true within {seconds:g} seconds")


def copy_run(first: Path, number: int, name: str) -> None:
    """Copy a run under another id; the higher the number, the newer it is."""
    folder = first.with_name(name)
    shutil.copytree(first, folder)
    info = json.loads((first / "run.json").read_text())
    own = {"id": name, "name": name, "created": info["created"] + number / 1e6}
    (folder / "run.json").write_text(json.dumps({**info, **own}))
