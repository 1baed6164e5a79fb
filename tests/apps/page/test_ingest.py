"""The endpoints that take runs of other machines: who may send what, and what is refused."""

import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from serving_runs import Serve, eventually
from starlette.testclient import TestClient

import barograph
from barograph.apps.cli import main
from barograph.apps.page.http.app import ENDPOINTS, ProjectApps
from barograph.apps.page.http.connection_limits import ConnectionLimits
from barograph.apps.page.http.endpoints import description
from barograph.apps.page.http.guard import Guard
from barograph.apps.page.http.ingest import PATHS, Ingest
from barograph.apps.page.http.serving import TeamOptions, ingest_limits, token_for
from barograph.delivery.transfer.receiver import DirectoryLimits, ReceiverLimits
from barograph.delivery.transfer.tokens import TokenFile
from barograph.journal.format import frames

NAME = "trainer.0.1.0.seg"
MUTATED = int(os.environ.get("BAROGRAPH_MUTATED_REQUESTS", "300"))
LIMITS = DirectoryLimits(projects=4, runs=3, of_run=ReceiverLimits(largest_piece=50_000, info_bytes=1000))


def row(step: int) -> bytes:
    return frames.frame(frames.row_struct(1).pack(frames.Kind.ROW, 7, step, 1000.0 + step, 0.5))


SEGMENT = frames.segment_head() + b"".join(map(row, range(20)))
INFO = b'{"format": 1, "id": "r1", "project": "lab", "name": "r1", "created": 1.0}'


class Team:
    """A server for a team, and the tokens of its people."""

    def __init__(self, dir: Path) -> None:
        self.dir = dir
        self.tokens = TokenFile(dir)
        self.apps = ProjectApps(dir, ingest=True, limits=LIMITS)
        self.guard = Guard(token="root", tokens=self.tokens)
        self.app = self.apps.guarded(self.guard)
        self.write = self.tokens.new(["write"], "lab")
        self.read = self.tokens.new(["read"], "lab")
        self.foreign = self.tokens.new(["admin"], "other")

    def files(self) -> list[str]:
        """Return what the directory contains, without the page's own files."""
        inside = [path.relative_to(self.dir) for path in self.dir.rglob("*") if path.is_file()]
        return sorted(str(path) for path in inside if ".page" not in path.parts)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    dir = tmp_path / "served"
    dir.mkdir()
    return Team(dir)


@pytest.fixture
def client(team: Team) -> Iterator[TestClient]:
    with TestClient(team.app, base_url="http://127.0.0.1", raise_server_exceptions=True) as client:
        yield client


Send = Callable[..., httpx.Response]


@pytest.fixture
def send(client: TestClient, team: Team) -> Send:
    """Return a function that sends a piece with a token that may write."""

    def post(
        data: bytes = SEGMENT,
        offset: object = 0,
        path: str = f"lab/r1/{NAME}",
        token: str | None = None,
        **query: object,
    ) -> httpx.Response:
        fields = {"offset": offset, "crc": f"{crc32(data):08x}", **query}
        bearer = {"authorization": f"Bearer {team.write if token is None else token}"}
        return client.post(f"/api/transfer/{path}", params=fields, content=data, headers=bearer)

    return post


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_pieces_arrive_and_are_seen_on_the_page(send: Send, client: TestClient, team: Team):
    """In any order; the answer is how many bytes are held, and the run is read as if it had been recorded here."""
    half = len(frames.segment_head()) + 8 * len(row(0))
    beyond = send(SEGMENT[half:], half)
    assert (beyond.status_code, beyond.json()["held"]) == (409, 0)
    assert "differs" not in beyond.json()
    assert send(SEGMENT[:half]).json() == {"held": half}
    assert send(SEGMENT[half:], half).json() == {"held": len(SEGMENT)}
    assert send(SEGMENT[:half]).json() == {"held": len(SEGMENT)}
    assert send(b"torn", len(SEGMENT), last=1).json() == {"held": len(SEGMENT) + 4}
    assert send(INFO, path="lab/r1/run.json").json() == {"held": len(INFO)}
    assert (team.dir / "lab" / "r1" / NAME).read_bytes() == SEGMENT + b"torn"
    listed = client.get("/api/transfer/lab/r1", headers=bearer(team.write)).json()
    assert listed == {"segments": {NAME: len(SEGMENT) + 4}, "piece_bytes": 4 << 20}
    assert client.get("/api/transfer/lab/new", headers=bearer(team.read)).json()["segments"] == {}
    place = f"/api/transfer/lab/r1/{NAME}?offset=5&length=11"
    assert client.get(place, headers=bearer(team.read)).content == SEGMENT[5:16]
    assert client.get(place, headers=bearer(team.write)).status_code == 403
    [shown] = client.get("/api/runs", headers=bearer(team.read)).json()["runs"]
    assert (shown["key"], shown["last_step"]) == ("r1", 19)
    assert team.files() == ["lab/r1/run.json", f"lab/r1/{NAME}", "lab/r1/transfer/received"]


def test_what_is_not_a_piece_is_refused(send: Send, team: Team):
    """With a status that says whether to go on, and from where; nothing is written."""
    assert send(SEGMENT[:-3]).status_code == 400
    assert send(SEGMENT[16:]).status_code == 400
    assert send(SEGMENT, crc="zzzzzzzz").status_code == 400
    assert send(SEGMENT, crc="").status_code == 400
    assert send(SEGMENT, -1).status_code == 400
    assert send(SEGMENT, 1 << 60).status_code == 400
    assert send(SEGMENT, "").status_code == 400
    assert send(SEGMENT + row(1) * 2000).status_code == 413
    damaged = send(SEGMENT, crc="00000000")
    assert (damaged.status_code, damaged.json()["held"]) == (409, 0)
    assert send(b"[]", path="lab/r1/run.json").status_code == 400
    assert send(INFO.replace(b"lab", b"other"), path="lab/r1/run.json").status_code == 400
    assert send(b" " * 2000, path="lab/r1/run.json").status_code == 413
    assert team.files() == []
    send()
    other = send(frames.segment_head() + row(3))
    assert (other.status_code, other.json()["differs"], other.json()["held"]) == (409, True, len(SEGMENT))


def test_only_a_valid_token_of_the_project_may_send(send: Send, client: TestClient, team: Team):
    """In the header only: neither a cookie nor the address counts; the reason is told where the token is known."""
    assert send(token="wrong").status_code == 401
    assert send(token="").status_code == 401
    assert send(token=team.read).status_code == 403
    assert send(token=team.foreign).status_code == 403
    ended = team.tokens.new(["write"], "lab", ends=1.0)
    assert "is ended" in send(token=ended).json()["error"]
    revoked = team.tokens.new(["write"], "lab")
    assert send(token=revoked).status_code == 200
    team.tokens.revoke(revoked.split("_")[1])
    assert send(token=revoked).status_code == 401
    path = f"/api/transfer/lab/r2/{NAME}"
    for query, headers in ((f"?token={team.write}", {}), ("", {"cookie": f"barograph_8790={team.write}"})):
        answer = client.post(path + query, content=SEGMENT, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert not (team.dir / "lab" / "r2").exists()
    assert send(token="root", path=f"more/r1/{NAME}").status_code == 200  # the token of barograph up
    assert "barograph_ingest_refused_tokens_total 6" in client.get("/metrics", headers=bearer("root")).text


@pytest.mark.parametrize(
    "path",
    [
        f"lab/../{NAME}", f"lab/%2e%2e/{NAME}", f"lab/..%2f..%2fx/{NAME}", f"lab/r1/..%2f{NAME}", "lab/r1/..",
        "lab/r1/", f"lab/.r/{NAME}", "lab/r1/transfer%2freceived", "lab/r1/trainer.0.1.0.seg%00",
        "lab/r1/%0a.0.1.0.seg",
        "lab/r1/trainer.00.1.0.seg", f"lab/r1/x/{NAME}", f"lab//{NAME}", f"lab/{'r' * 65}/{NAME}", "lab/r1/tokens.json",
    ],
)  # fmt: skip
def test_no_name_leaves_the_directory(path: str, send: Send, client: TestClient, team: Team, tmp_path: Path):
    """However it is written."""
    assert send(path=path, token="root").status_code in (400, 403, 404, 405)
    answer = client.get(f"/api/transfer/{path}?offset=0&length=99", headers=bearer("root"))
    assert answer.status_code in (400, 403, 404) or answer.json()["segments"] == {}
    assert team.files() == []
    assert [path.name for path in tmp_path.iterdir()] == ["served"]


def test_nothing_is_put_into_the_folder_of_a_run(send: Send, team: Team):
    """Where the directory has runs without projects, they are no projects."""
    (team.dir / "alone").mkdir()
    (team.dir / "alone" / "run.json").write_bytes(INFO)
    assert send(path=f"alone/index/{NAME}", token="root").status_code == 400
    assert team.files() == ["alone/run.json"]


def test_there_is_a_limit_on_runs_and_projects(send: Send):
    """A run that is there goes on."""
    for number in range(3):
        assert send(path=f"lab/r{number}/{NAME}").status_code == 200
    assert send(path=f"lab/r9/{NAME}").status_code == 413
    assert send(path=f"lab/r1/{NAME}").status_code == 200
    for number in range(3):
        assert send(path=f"p{number}/r/{NAME}", token="root").status_code == 200
    assert send(path=f"p9/r/{NAME}", token="root").status_code == 413


def test_memory_for_pieces_is_limited(team: Team, send: Send, client: TestClient):
    """A sender is told when to come again; other projects get through when one has its share."""
    ingest = team.apps._ingest
    assert isinstance(ingest, Ingest)
    ingest._max_waiting = 3 * len(SEGMENT)
    with ingest._reserved("lab", len(SEGMENT)):
        busy = send()
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        assert send(path=f"other/r1/{NAME}", token=team.foreign).status_code == 200
        with ingest._reserved("third", 2 * len(SEGMENT)):
            full = send(path=f"other/r2/{NAME}", token=team.foreign)
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
    assert send().status_code == 200
    assert "barograph_ingest_waiting_bytes 0" in client.get("/metrics", headers=bearer("root")).text


def test_a_body_needs_its_length(team: Team, client: TestClient):
    """Since memory is reserved for it before it is read."""

    def chunks() -> Iterator[bytes]:
        yield SEGMENT

    path = f"/api/transfer/lab/r1/{NAME}?offset=0&crc={crc32(SEGMENT):08x}"
    assert client.post(path, content=chunks(), headers=bearer(team.write)).status_code == 411
    assert client.put(path, content=SEGMENT, headers=bearer(team.write)).status_code == 405
    assert team.files() == []


def test_metrics_are_in_the_form_of_prometheus(send: Send, client: TestClient, team: Team):
    """For a token of all projects; its parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser")
    send()
    send()
    send(SEGMENT, 7)
    send(path="lab/../x")
    for token in (team.write, team.read, team.foreign):
        assert client.get("/metrics", headers=bearer(token)).status_code == 403
    assert client.get("/metrics").status_code == 401
    text = client.get("/metrics", headers=bearer(team.tokens.new(["read"]))).text
    values = {
        (sample.name.removeprefix("barograph_ingest_"), *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["pieces_total",] == 2
    assert values["repeated_pieces_total",] == 1
    assert values["bytes_total",] == len(SEGMENT)
    assert values["refused_total", "differs"] == 1
    assert values["open_runs",] == values["open_segments",] == 1
    assert values["lag_seconds",] > 1e9  # the rows are of 1970
    assert values["silent_seconds",] < 60
    finish = frames.frame(frames.record_payload(frames.Kind.EVENT, {"event": "finish", "time": 1.0}))
    send(finish, len(SEGMENT))
    ended = client.get("/metrics", headers=bearer("root")).text
    assert "barograph_ingest_open_segments 0\n" in ended
    assert "barograph_ingest_lag_seconds 0\n" in ended


def test_nothing_of_another_project_can_be_read(team: Team, client: TestClient, tmp_path: Path):
    """Neither by the list, nor by an endpoint with a run, nor by comparing, nor by annotations, nor by live events."""
    for project in ("lab", "other"):
        with barograph.init(dir=team.dir, project=project, id=f"{project}-run", name=f"name-{project}") as run:
            run.log({"critic/score/mean": 0.5}, step=0)
            run.sample(prompt=f"secret-{project}", completion="c", reward=1.0)
    admin = {**bearer("root"), "content-type": "application/json"}
    client.patch("/api/runs/other-run", json={"note": "secret-other"}, headers=admin)
    client.post("/api/views", json={"name": "secret-other", "state": "a=b"}, headers=admin)
    client.post("/api/reports", json={"name": "secret-other", "text": "secret-other"}, headers=admin)
    own, keys = bearer(team.read), ("other-run", "other/other-run", "..%2Fother%2Fother-run", "../other/other-run")
    seen = []
    for endpoint in ENDPOINTS:
        for key in keys:
            path = endpoint.path.replace("{run}", key)
            sent = {"series": [{"run": key, "name": "critic/score/mean"}]} if "series" in path else {}
            sent = {"runs": [key], "text": f"```runs\n{key}\n```"} if "/api/report" in path else sent
            sent = {"groups": [[{"run": key, "name": "critic/score/mean"}]]} if "bands" in path else sent
            asked = {"run": key, "key": key, "step": 0, "value": "x", "place": "0:0", "name": "critic/score/mean"}
            body = {"json": sent} if endpoint.method == "POST" else {}
            answer = client.request(endpoint.method, path, params=asked, headers=own, **body)
            assert answer.status_code < 500
            if answer.status_code == 200:
                seen.append(answer.text)
            if "{run}" in endpoint.path:
                assert answer.status_code in (400, 403, 404, 405)
    assert len(seen) > 20
    assert "name-lab" in "".join(seen)
    assert not [text for text in seen if "secret-other" in text or "name-other" in text]
    assert client.get("/api/live", params={"run": "other-run"}, headers=own).status_code == 404
    assert client.get("/api/transfer/other/other-run", headers=own).status_code == 403
    assert client.patch("/api/runs/lab-run", json={"pinned": True}, headers=own).status_code == 403
    assert client.post("/api/reports", json={"name": "a", "text": "b"}, headers=own).status_code == 403
    assert client.get("/api/runs", headers=bearer(team.write)).status_code == 403
    assert client.patch("/api/runs/lab-run", json={"pinned": True}, headers=bearer(team.write)).status_code == 403
    both = bearer(team.tokens.new(["read", "write"], "lab"))
    assert client.patch("/api/runs/lab-run", json={"pinned": True}, headers=both).json()["pinned"]
    assert {run["key"] for run in client.get("/api/runs", headers=admin).json()["runs"]} == {"lab-run", "other-run"}


def test_the_event_stream_of_a_revoked_token_ends(serve: Serve, tmp_path: Path):
    """With its next event; the page that connects again is refused."""
    client = serve(token="root", options=TeamOptions(ingest=True))
    tokens = TokenFile(tmp_path / "runs")
    token = tokens.new(["read"], "lab")
    path = f"/api/transfer/lab/r1/{NAME}?offset=0&crc={crc32(SEGMENT):08x}"
    with client.stream("GET", "/api/live", headers=bearer(token)) as stream:
        events = stream.iter_lines()
        assert next(events) == "event: hello"
        tokens.revoke(token.split("_")[1])
        client.post(path, content=SEGMENT, headers=bearer("root"))  # a run that the list has not had
        assert "event: runs" not in list(events)
    assert client.get("/api/live", headers=bearer(token)).status_code == 401


def test_a_token_opens_the_page_of_its_project_in_a_browser(team: Team, client: TestClient):
    """From its address into a cookie."""
    entered = client.get("/", params={"token": team.read}, follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert client.get("/api/about").json()["directory"] == str(team.dir / "lab")


def test_a_slow_or_lost_sender_leaves_nothing(serve: Serve, tmp_path: Path):
    """Its connection is closed, its memory is free again, and the next one sends the same piece."""
    limits = ConnectionLimits(body_seconds=0.4)
    client = serve(token="root", options=TeamOptions(ingest=True), limits=limits)
    path = f"/api/transfer/lab/r1/{NAME}?offset=0&crc={crc32(SEGMENT):08x}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer root\r\nContent-Length: {len(SEGMENT)}\r\n\r\n"
    for is_slow in (True, False):
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=20) as connection:
            connection.sendall(head.encode() + SEGMENT[:-5])
            if is_slow:
                assert connection.recv(4096).startswith(b"HTTP/1.1 408")

    def metrics() -> str:
        return client.get("/metrics", headers=bearer("root")).text

    eventually(lambda: 'refused_total{reason="disconnected"} 2' in metrics())
    assert "waiting_bytes 0" in metrics()
    assert not (tmp_path / "runs" / "lab").exists()
    assert client.post(path, content=SEGMENT, headers=bearer("root")).json() == {"held": len(SEGMENT)}


def test_the_command_needs_a_token_and_a_directory_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also over loopback, where the page alone needs none: what is sent must be somebody's."""
    assert token_for("127.0.0.1", None, always=True)
    limits = ingest_limits()
    assert limits.body_bytes == ReceiverLimits().largest_piece
    assert limits.connections >= 512
    with barograph.init(dir=tmp_path, id="alone") as run:
        run.log({"a": 1.0}, step=0)
    assert main(["up", str(run.path), "--ingest"]) == 1
    assert "--ingest needs a directory of runs" in capsys.readouterr().err


def mutated(request: httpx.Request, chosen: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """Return method, path, body and headers of a request in which something is changed at random."""
    method, path, body = request.method, request.url.raw_path.decode(), request.content
    headers = {"authorization": request.headers["authorization"]}
    for _ in range(chosen.randrange(1, 4)):
        kind = chosen.randrange(5)
        if kind == 0:
            place = chosen.randrange(14, len(path))
            path = (
                path[:place] + chosen.choice(["/", "..", "%2f", "%00", "9", "&", "?", "%", "é", ""]) + path[place + 1 :]
            )
        elif kind == 1 and body:
            place = chosen.randrange(len(body))
            body = body[:place] + chosen.randbytes(chosen.randrange(3)) + body[place + 1 :]
        elif kind == 2:
            body = body[: chosen.randrange(len(body) + 1)]
        elif kind == 3:
            method = chosen.choice(["GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS"])
        else:
            token = headers["authorization"]
            place = chosen.randrange(len(token))
            headers["authorization"] = token[:place] + chosen.choice("x _") + token[place + 1 :]
    return method, path, body, headers


def send_mutated(team: Team, client: TestClient, count: int, seed: int = 0) -> dict[int, int]:
    """Send requests that are changed at random; return how many had which status."""
    chosen = random.Random(seed)
    statuses: dict[int, int] = {}
    cut = len(frames.segment_head()) + 5 * len(row(0))
    for number in range(count):
        offset, data = chosen.choice([(0, SEGMENT[:cut]), (cut, SEGMENT[cut:])])
        target = chosen.choice([f"lab/r{number % 3}/{NAME}", "lab/r1/run.json", f"other/r1/{NAME}"])
        crc = f"{crc32(data):08x}"
        request = client.build_request(
            "POST", f"/api/transfer/{target}?offset={offset}&crc={crc}", content=data, headers=bearer(team.write)
        )
        method, path, body, headers = mutated(request, chosen)
        if "crc=" in path and chosen.random() < 0.7:  # so that the changed body is looked at
            path = path.replace(crc, f"{crc32(body):08x}")
        answer = client.request(method, path, content=body, headers=headers, follow_redirects=False)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    return statuses


def test_requests_that_are_changed_at_random_harm_nothing(team: Team, client: TestClient, tmp_path: Path):
    """Every answer is a refusal or right, and only the project of the token is written to.

    ``BAROGRAPH_MUTATED_REQUESTS`` is their number.
    """
    (tmp_path / "outside").write_text("same")
    statuses = send_mutated(team, client, MUTATED)
    assert set(statuses) <= {200, 400, 401, 403, 404, 405, 409, 411, 413}
    assert len(statuses) > 4
    check_written(team)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "served"]


def check_written(team: Team) -> None:
    """Check that only the project has files, and each the name of a file of a run."""
    for name in team.files():
        project, run, *rest = name.split("/")
        assert project == "lab"
        assert len(run) <= 64
        assert rest in (["transfer", "received"], ["run.json"]) or rest[0].endswith(".seg")


@pytest.fixture(scope="module")
def shared_team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    return Team(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize(
    ("method", "path"), [(m, p) for p, methods in PATHS.items() for m in methods if m != "parameters"]
)
def test_generated_requests_get_the_answers_that_are_described(method: str, path: str, shared_team: Team):
    """Schemathesis makes them of the description; every status is a documented one."""
    schema = schemathesis.openapi.from_dict(description(ENDPOINTS, PATHS))
    schema.app = shared_team.app

    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def check(case: schemathesis.Case) -> None:
        if case.path_parameters:
            case.path_parameters |= {"project": "lab", "run": "r1", "segment": NAME}
        response = case.call(base_url="http://127.0.0.1", headers=bearer("root"))
        case.validate_response(response, checks=[not_a_server_error, status_code_conformance, content_type_conformance])

    check()
