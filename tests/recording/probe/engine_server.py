"""A small HTTP server with the expositions of vLLM and SGLang, for tests of what is read from them."""

import http.server
import threading
from typing import Any, Self

MODEL = r"Qwen/Qwen3-8B \"chat\" {v1}\\path, a=b"  # labels may contain quotes, backslashes, braces and commas

HISTOGRAM = """\
# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="%(model)s"} 3.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="%(model)s"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="%(model)s"} 9.0
vllm:iteration_tokens_total_sum{engine="0",model_name="%(model)s"} 4096.0
"""
PYTHON = """\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12",patchlevel="3",version="3.12.3"} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.75000000042e+09
"""


def metric(name: str, kind: str, about: str, samples: dict[str, float | str]) -> str:
    """Return HELP, TYPE and the samples of a metric, by their labels; a counter has the time of its creation, too."""
    base = name.removesuffix("_total") if kind == "counter" else name
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value}" for labels, value in samples.items()]
    if kind == "counter":
        lines += [f"# HELP {base}_created {about}", f"# TYPE {base}_created gauge"]
        lines += [f"{base}_created{{{labels}}} 1.7500000432e+09" for labels in samples]
    return "\n".join(lines) + "\n"


def vllm(
    running: float = 3,
    waiting: float = 2,
    cache: float | str = 0.25,
    preemptions: float = 0,
    hits: float = 0,
    queries: float = 0,
    prompt: float = 0,
    generated: float = 0,
    engines: int = 1,
    names: str = "v1",
) -> str:
    """Return an exposition of vLLM, in which every data-parallel engine has these values.

    ``names`` are those of V1 since 0.9.2 (v1), of V1 before (gpu), both, as 0.9.2 to 0.11 serve them, or of V0.
    """
    each = [f'engine="{number}",model_name="{MODEL}"' for number in range(engines)]
    if names == "v0":
        each = [f'model_name="{MODEL}"']

    def all_of(value: float | str) -> dict[str, float | str]:
        return dict.fromkeys(each, float(value) if value != "NaN" else value)

    text = PYTHON
    text += metric("vllm:num_requests_running", "gauge", "Number of requests in execution batches.", all_of(running))
    text += metric("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", all_of(waiting))
    by_reason = {f'{labels},reason="capacity"': value for labels, value in all_of(waiting).items()}
    text += metric("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.", by_reason)
    for prefix in {"v1": [""], "gpu": ["gpu_"], "both": ["gpu_", ""], "v0": ["gpu_"]}[names]:
        cache_name = "vllm:gpu_cache_usage_perc" if prefix else "vllm:kv_cache_usage_perc"
        text += metric(cache_name, "gauge", "KV-cache usage. 1 means 100 percent usage.", all_of(cache))
        if names != "v0":
            about = "Prefix cache queries, in terms of number of queried tokens."
            text += metric(f"vllm:{prefix}prefix_cache_queries_total", "counter", about, all_of(queries))
            about = "Prefix cache hits, in terms of number of cached tokens."
            text += metric(f"vllm:{prefix}prefix_cache_hits_total", "counter", about, all_of(hits))
    about = "Cumulative number of preemption from the engine."
    text += metric("vllm:num_preemptions_total", "counter", about, all_of(preemptions))
    text += metric("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", all_of(prompt))
    text += metric("vllm:generation_tokens_total", "counter", "Number of generation tokens.", all_of(generated))
    return text + HISTOGRAM % {"model": MODEL}


def sglang(
    running: float = 3,
    waiting: float = 2,
    cache: float = 0.25,
    retracted: float | None = None,
    hit_rate: float = 0.9,
    cached: float | None = None,
    prompt: float | None = None,
    generated: float | None = None,
    computed: float | None = None,
    found: float | None = None,
    decoded: float | None = None,
    ranks: tuple[str, ...] = ('tp_rank="0",pp_rank="0",moe_ep_rank="0"',),
    priorities: bool = False,
) -> str:
    """Return an exposition of SGLang with these values on every rank; a counter that is None has no sample yet.

    ``computed``, ``found`` and ``decoded`` are the modes of ``realtime_tokens_total``, which 0.5.7 and later have.
    """
    model = f'engine_type="unified",model_name="{MODEL}"'
    all_priorities = ',priority=""' if priorities else ""
    each = [f"{model},{rank}{all_priorities}" for rank in ranks]
    parts = [f'{model},{rank},priority="{number}"' for rank in ranks for number in (0, 7)] if priorities else []

    def all_of(value: float, split: bool = False) -> dict[str, float | str]:
        return {**dict.fromkeys(each, float(value)), **(dict.fromkeys(parts, value / 2) if split else {})}

    text = metric("sglang:num_running_reqs", "gauge", "The number of running requests.", all_of(running, True))
    text += metric("sglang:num_queue_reqs", "gauge", "The number of requests in the queue.", all_of(waiting, True))
    text += metric("sglang:token_usage", "gauge", "The token usage.", all_of(cache))
    text += metric("sglang:gen_throughput", "gauge", "The generation throughput (token/s).", all_of(86.5))
    text += metric("sglang:cache_hit_rate", "gauge", "The prefix cache hit rate.", all_of(hit_rate))
    modes = {"prefill_compute": computed, "prefill_cache": found, "decode": decoded}
    realtime: dict[str, float | str] = {
        f'{labels},mode="{mode}"': value for labels in each for mode, value in modes.items() if value is not None
    }
    about = "Total number of tokens processed (updated on each log interval)."
    counters: tuple[tuple[str, str, dict[str, float | str]], ...] = (
        (
            "num_retracted_requests",
            "Total number of retracted requests.",
            {} if retracted is None else all_of(retracted),
        ),
        ("realtime_tokens", about, realtime),
        ("prompt_tokens", "Number of prefill tokens processed.", _by(model, "is_streaming", prompt)),
        ("generation_tokens", "Number of generation tokens processed.", _by(model, "is_streaming", generated)),
        ("cached_tokens", "Number of cached prompt tokens.", _by(model, "cache_source", cached)),
    )
    for name, help, samples in counters:
        if samples:
            text += metric(f"sglang:{name}_total", "counter", help, samples)
    return text + (HISTOGRAM % {"model": MODEL}).replace("vllm:iteration_tokens_total", "sglang:queue_time_seconds")


def _by(model: str, label: str, value: float | None) -> dict[str, float | str]:
    first = {"is_streaming": "false", "cache_source": "device"}[label]
    return {} if value is None else {f'{model},{label}="{first}"': value}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the server's mode says."""

    server: "EngineServer"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        getattr(self, self.server.mode)()

    def serve(self, status: int = 200, body: bytes | None = None) -> None:
        body = self.server.text.encode() if body is None else body
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fail(self) -> None:
        self.serve(500, b"Internal Server Error")

    def missing(self) -> None:
        self.serve(404, b'{"detail":"Not Found"}')

    def page(self) -> None:
        self.serve(200, b"<html><body>welcome</body></html>")

    def garbage(self) -> None:
        self.wfile.write(b"\x00\xff\x16\x03\x01 not HTTP at all \r\n\r\n")

    def hang(self) -> None:
        self.server.released.wait(60)

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        line = b"vllm:num_requests_running 1\n" * 4096
        while not self.server.released.is_set():
            self.wfile.write(line)

    def drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.server.released.wait(0.02):
            self.wfile.write(b"#")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class EngineServer(http.server.ThreadingHTTPServer):
    """An engine: ``text`` is its exposition, ``mode`` the method of ``Handler`` that answers."""

    daemon_threads = True

    def __init__(self, text: str = "", listening: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server_bind()  # without listening, connections are refused
        self._listening = listening
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self.text = text
        self.mode = "serve"
        self.requests: list[tuple[str, str | None]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client closed the connection

    def listen(self) -> None:
        """Accept connections from now on."""
        self.server_activate()
        self._thread.start()

    def __enter__(self) -> Self:
        if self._listening:
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.shutdown()
        self._thread.join(5)
        self.server_close()
