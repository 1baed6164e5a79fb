"""Real Ray, several nodes without a shared disk: their segments arrive where the run began, whatever is killed."""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import answers_of

import barograph
from barograph.base.model import Writer
from barograph.delivery.transfer.state import ReceivedList
from barograph.journal.format.folder import SegmentFile, segments
from barograph.journal.segments.reader import SegmentReader

DRIVER = Path(__file__).with_name("ray_nodes_driver.py")
VALUES = 40  # of each call, as in the driver

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray")


@dataclass(frozen=True)
class Nodes:
    """What the actors answered, and the run on the disk of the driver."""

    answers: dict[str, Any]
    view: barograph.View

    def steps(self, segment: SegmentFile) -> list[int]:
        """Return the steps of the rows with a value, in the order in which they are in a segment."""
        reader = SegmentReader(segment.path)
        reader.poll()
        names = {id: names for id, names in reader.schemas.items() if "value" in names}
        found = [step for id in names for chunk in reader.tables[id].chunks for step in chunk.steps.tolist()]
        return sorted(found)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    """Run all cases once, in a mount namespace: with root's rights, or those of a user namespace."""
    prefixes = (["unshare", flags] for flags in ("-m", "-Urm"))
    able = shutil.which("unshare") and (one for one in prefixes if not subprocess.run([*one, "true"]).returncode)
    prefix = next(able, None) if able else None
    if prefix is None:
        pytest.skip("no mount namespace can be made, so that nodes would share a disk")
    answers, folder = answers_of(tmp_path_factory, DRIVER, prefix)
    return Nodes(answers, barograph.open("nodes", dir=folder / "runs"))


def test_actors_on_other_nodes_have_ranks_of_the_run(nodes: Nodes):
    """Those of the same rules as on a shared disk: a free one of the role, and a restarted actor keeps its own."""
    assert [place[:3] for place in (nodes.answers["a"], nodes.answers["b"])] == [["trainer", 1, 1], ["explorer", 0, 1]]
    assert nodes.answers["restarted"][:3] == ["trainer", 1, 2]


def test_every_acknowledged_value_is_there_once(nodes: Nodes):
    """Of a killed actor, of its next process, and of those while the actors that carry segments were killed."""
    found = {segment.path.name: nodes.steps(segment) for segment in segments(nodes.view.path)}
    # Of the killed node, that its process has ended may be told before the node is gone.
    assert found.pop("explorer.0.1.1.seg", []) == []
    assert found == {
        "explorer.0.1.0.seg": list(range(2 * VALUES)),  # up to the end of its node
        "trainer.0.1.0.seg": [],
        "trainer.1.1.0.seg": list(range(VALUES)),
        "trainer.1.1.1.seg": [],  # the end of the killed process
        "trainer.1.2.0.seg": list(range(VALUES, 4 * VALUES)),
    }
    assert nodes.answers["left"] == []
    assert nodes.view.damage() == []
    assert nodes.view.problems() == []


def test_nothing_is_recorded_in_a_directory_of_the_same_path(nodes: Nodes):
    """Neither where it is empty nor where it has a copy of the run; what came from there is known as received."""
    assert nodes.answers["seen"] == [[], ["trainer.0.1.0.seg"]]
    received = ReceivedList(nodes.view.path)
    own = [segment.path.name for segment in segments(nodes.view.path) if segment.path.name not in received]
    assert own == ["trainer.0.1.0.seg"]


def test_what_a_lost_node_has_is_told_at_the_end(nodes: Nodes):
    """And nothing about the one that lives, which has sent all; the run is finished."""
    (told,) = nodes.answers["warnings"]
    assert "(its Ray node, or the actor there, is lost)" in told
    assert f"/disk/spool/nodes/*.seg' '{nodes.view.path}/'" in told
    assert nodes.view.status.word == "finished"
    assert nodes.view.writer_statuses()[Writer("trainer", 1, 2)].word == "finished"
