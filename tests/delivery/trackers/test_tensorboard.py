"""TensorBoard: event files read by TensorBoard's readers, truncation, restarts and errors."""

import json
import math
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from material import (
    AGAIN,
    HISTOGRAM,
    INFO,
    KEY,
    NAMES,
    TEXT,
    Series,
    expected,
    files_with_key,
    rows,
    single,
    started_trackers,
)

from barograph.base.errors import TrackerError
from barograph.base.files.crc32c import crc32c
from barograph.base.model import Row, RunInfo, Status, Writer
from barograph.delivery.trackers.registry import make
from barograph.delivery.trackers.tensorboard import TensorBoardTracker
from barograph.recording.tracker import Rewindable
from readers import tensorboard_accumulated, tensorboard_scalars, tensorboard_texts

pytest.importorskip("tensorboard")
Start = Callable[..., TensorBoardTracker]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def single_precision(series: Series) -> dict[str, list[tuple[int, float]]]:
    return {name: [(step, float(np.float32(v))) for step, v in points.items()] for name, points in series.items()}


READ_FAST = """
import json, sys, time
from tensorboard import context
from tensorboard.data import server_ingester
from tensorboard.util import grpc_util

server = server_ingester.SubprocessServerDataIngester(
    server_binary=server_ingester.get_server_binary(), logdir=sys.argv[1], reload_interval=1,
    channel_creds_type=grpc_util.ChannelCredsType.LOCAL)
server.start()
provider, ask = server.data_provider, {"ctx": context.RequestContext(), "experiment_id": ""}
while not provider.list_tensors(plugin_name="hparams", **ask):
    time.sleep(0.1)
read = provider.read_scalars(plugin_name="scalars", downsample=1000, **ask)
scalars = {run: {tag: [(d.step, d.value) for d in data] for tag, data in tags.items()} for run, tags in read.items()}
kinds = ("text", "histograms", "hparams")
tags = {kind: {run: list(t) for run, t in provider.list_tensors(plugin_name=kind, **ask).items()} for kind in kinds}
print(json.dumps([scalars, tags]))
"""


def read_fast(folder: Path) -> Any:
    """Read a directory with TensorBoard's data server: scalars by run and tag, and tags by plugin and run."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_FAST, str(folder)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TensorBoardTracker]]:
    """Start trackers that write to ``tmp_path``; close their files at the end, as by a kill."""

    def make(**kwargs: Any) -> TensorBoardTracker:
        return TensorBoardTracker(**{"log_dir": tmp_path / "tb", **kwargs})

    yield from started_trackers(make, lambda tracker: tracker._close(), tmp_path)


def test_all_values_texts_histograms_and_samples_are_read_back(start: Start):
    """200 steps of 100 values equal float32, read with TensorBoard's reader."""
    tracker = start()
    for row in rows():
        tracker.log([row])
    tracker.finish(Status("finished"))
    found = tensorboard_scalars(Path(str(tracker.url)))
    assert found.pop("barograph/nonfinite/dist") == [(step, 2.0) for step in range(0, 200, 20)]
    assert found == single_precision(expected())
    accumulator = tensorboard_accumulated(Path(str(tracker.url)))
    assert tensorboard_texts(accumulator, "note/text_summary") == {
        step: f"{step}: {TEXT}" for step in range(0, 200, 10)
    }
    samples = tensorboard_texts(accumulator, "samples/text_summary")
    assert list(samples) == list(range(0, 200, 20))
    assert "2 + 2 \\| ?" in samples[20]
    assert "four<br>or 4" in samples[20]
    assert accumulator.Tensors("dist")[1].tensor_proto.tensor_content == struct.pack("<6d", 0, 0.5, 3, 0.5, 1, 4)
    assert "| train |" in tensorboard_texts(accumulator, "phases/text_summary")[0]
    assert accumulator.Scalars("loss")[3].wall_time == INFO.created + 3


def test_the_fast_loader_reads_the_same(start: Start):
    """TensorBoard's data server reads every number, text and histogram."""
    tracker = start()
    tracker.log(rows(range(50)))
    tracker.finish(Status("finished"))
    found, tags = read_fast(Path(str(tracker.url)))
    series = {name: [tuple(point) for point in found["."][name]] for name in NAMES}
    assert series == single_precision(expected(range(50)))
    assert set(tags["text"]["."]) == {"note/text_summary", "samples/text_summary", "phases/text_summary"}
    assert tags["histograms"]["."] == ["dist"]
    assert set(tags["hparams"]["."]) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}


def test_the_hparams_tab_is_filled(start: Start, tmp_path: Path):
    """TensorBoard's plugin returns hyperparameters, metrics and status of two runs."""
    from tensorboard import context
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

    for name, word in (("one", "finished"), ("two", "crashed")):
        tracker = start(exp_name=name)
        tracker.log(rows(range(3)))
        tracker.finish(Status(word))  # type: ignore[arg-type]
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "tb"))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path / "tb"))
    answers = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    ctx, id = context.RequestContext(), ""
    experiment = get_experiment.Handler(ctx, answers, id, api_pb2.GetExperimentRequest(include_metrics=True)).run()
    assert {info.name for info in experiment.hparam_infos} >= {"actor.lr", "actor.betas", "seed", "use_kl", "model"}
    assert {info.name.tag for info in experiment.metric_infos} >= set(NAMES)
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[1, 2], include_metrics=True
    )
    request.col_params.add(metric=api_pb2.MetricName(tag="loss"))
    request.col_params.add(hparam="actor.lr")
    groups = list_session_groups.Handler(ctx, answers, id, request).run().session_groups
    assert [group.hparams["actor.lr"].number_value for group in groups] == [1e-6, 1e-6]
    assert [session.status for group in groups for session in group.sessions] == [1, 2]
    last = {metric.name.tag: metric.value for metric in groups[0].sessions[0].metric_values}
    assert last["loss"] == pytest.approx(expected()["loss"][2])


def test_the_directory_is_rolls_and_is_printed(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It is log_dir/exp_name/timestamp, with the timestamp of the run's first start."""
    tracker = start()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(INFO.created))
    assert tracker.url == str(tmp_path / "tb" / "frozen_lake" / stamp)
    assert capsys.readouterr().err == f"barograph: tensorboard --logdir {tracker.url}\n"
    by_trl = start(log_dir=None, logging_dir=tmp_path / "trl", exp_name="mine")
    assert by_trl.url == str(tmp_path / "trl" / "mine" / stamp)
    assert start(log_dir=None).url == str(tmp_path / "tensorboard" / "frozen_lake" / stamp)


def test_a_run_of_the_same_second_gets_its_own_directory(start: Start, tmp_path: Path):
    """Two runs of a sweep do not mix, and each finds its own files."""
    first = start()
    first.log(single("loss", {0: 1.0}))
    other = start(RunInfo("run-8", INFO.project, INFO.name, INFO.created))
    assert other.url == f"{first.url}-run-8"
    assert start().url == first.url


def test_a_continued_run_is_a_new_file_without_duplicate_points(start: Start):
    """A new attempt replaces the points from its first step on, in both of TensorBoard's readers."""
    tracker = start()
    tracker.log(single("loss", {step: float(step) for step in range(10)}))
    tracker.finish(Status("killed"))
    mark = tracker.mark()
    tracker = start()
    tracker.rewind(mark)
    tracker.log(single("loss", {step: 100.0 + step for step in range(5, 12)}, AGAIN))
    tracker.finish(Status("finished"))
    wanted = [*((step, float(step)) for step in range(5)), *((step, 100.0 + step) for step in range(5, 12))]
    folder = Path(str(tracker.url))
    assert len(list(folder.iterdir())) == 2
    assert tensorboard_scalars(folder) == {"loss": wanted}
    assert [tuple(point) for point in read_fast(folder)[0]["."]["loss"]] == wanted


@pytest.mark.parametrize("torn", [0, 1, 17])
def test_rows_after_the_mark_are_truncated_and_stored_once(start: Start, tmp_path: Path, torn: int):
    """Also after a partial last record."""
    tracker = start()
    assert isinstance(tracker, Rewindable)
    tracker.rewind({})
    tracker.log(rows(range(10)))
    mark = tracker.mark()
    tracker.log(rows(range(10, 20)))
    file = next((tmp_path / "tb").rglob("*tfevents*"))
    with file.open("r+b") as data:
        data.truncate(file.stat().st_size - torn)
    tracker = start()
    tracker.rewind(mark)
    tracker.log(rows(range(10, 30)))
    tracker.finish(Status("finished"))
    assert {k: v for k, v in tensorboard_scalars(file.parent).items() if k in NAMES} == single_precision(
        expected(range(30))
    )


def test_an_empty_mark_removes_the_runs_files(start: Start):
    """Other runs' files stay."""
    tracker = start()
    other = Path(str(tracker.url)) / "events.out.tfevents.1.host.other"
    other.write_bytes(b"")
    tracker.log(single("loss", {0: 1.0, 1: 2.0}))
    tracker = start()
    tracker.rewind({})
    tracker.log(single("loss", {0: 1.0, 1: 2.0}))
    assert tensorboard_scalars(Path(str(tracker.url))) == {"loss": [(0, 1.0), (1, 2.0)]}
    assert other.exists()


def test_a_failed_write_leaves_no_partial_rows(start: Start):
    """With a full disk no row is stored, and each is stored once when it is delivered again."""
    import resource
    import signal

    tracker = start()
    tracker.log(rows(range(3)))
    length = sum(tracker.mark()["files"].values())
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length + 1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large|No space"):
            tracker.log(rows(range(3, 6)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    tracker.log(rows(range(3, 6)))
    found = tensorboard_scalars(Path(str(tracker.url)))
    assert {name: found[name] for name in NAMES} == single_precision(expected(range(6)))


def test_steps_in_any_order_are_stored_with_a_warning(start: Start, capsys: pytest.CaptureFixture[str]):
    """The files have all points; a warning is printed once, as the fast loader takes a lower step for a restart."""
    tracker = start()
    values = {3: 1.0, 1: 2.0, -1: 3.0, 2: 4.0}
    tracker.log(single("loss", values))
    assert tensorboard_scalars(Path(str(tracker.url))) == {"loss": list(values.items())}
    assert capsys.readouterr().err.count("step 1 was logged after step 3: view with tensorboard --load_fast=false") == 1


def test_writers_with_their_own_steps_are_separate_runs(start: Start):
    """An explorer's step 3 is not the trainer's."""
    tracker = start()
    explorer, second = Writer("explorer", 0, 1), Writer("explorer", 1, 1)
    tracker.log([*single("a", {0: 1.0}), *single("b", {3: 2.0}, explorer), *single("b", {4: 2.5}, second)])
    folder = Path(str(tracker.url))
    assert tensorboard_scalars(folder / "explorer") == {"b": [(3, 2.0)]}
    assert tensorboard_scalars(folder / "explorer-1") == {"b": [(4, 2.5)]}


def test_nonfinite_values_are_stored(start: Start):
    """NaN, infinities, and values beyond float32; a lone surrogate in a name affects nothing else."""
    values = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf, "huge": 1e300, "half \ud800": 1.0}
    tracker = start()
    tracker.log([Row(0, 0.0, values, AGAIN, {"t": "\ud800"})])
    found = {name: points[0][1] for name, points in tensorboard_scalars(Path(str(tracker.url))).items()}
    assert math.isnan(found.pop("nan"))
    assert found == {"inf": math.inf, "ninf": -math.inf, "huge": math.inf, "half ?": 1.0}
    assert HISTOGRAM.nonfinite == 2


def test_configuration_errors(start: Start, tmp_path: Path):
    """A file instead of a directory, a directory that cannot be created, and an unknown argument."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match="log_dir .*file is a file; expected a directory"):
        make("tensorboard", {"log_dir": str(tmp_path / "file")})
    with pytest.raises(TrackerError, match="cannot write .*: Not a directory"):
        make("tensorboard", {"log_dir": str(tmp_path / "file" / "below")}).start(INFO, {}, tmp_path)
    with pytest.raises(TrackerError, match="unknown argument 'logdir'; did you mean 'log_dir'?"):
        make("tensorboard", {"logdir": "x"})


def test_no_secret_is_written(start: Start, tmp_path: Path):
    """Only the redacted config is written."""
    tracker = start()
    tracker.log(rows(range(2)))
    assert files_with_key(tmp_path) == []
    assert KEY not in str(tracker.mark())


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300) | st.binary(min_size=4_000, max_size=9_000))
def test_the_checksum_equals_tensorboards(data: bytes):
    """For data of any length."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as theirs

    assert crc32c(data) == theirs(data)


def test_the_checksum_of_known_bytes():
    """The examples of RFC 3720, B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"123456789") == 0xE3069283
