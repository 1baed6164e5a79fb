"""A server behind a proxy, at a base path, and one with a certificate of its own."""

import shutil
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import Open
from serving_runs import Serve
from starlette.testclient import TestClient

import barograph
from barograph.apps.cli import main
from barograph.apps.page.http.app import ProjectApps
from barograph.apps.page.http.guard import Guard
from barograph.apps.page.http.serving import ServingError, TeamOptions, address

PUBLIC = "https://runs.example.com/barograph/"
BEARER = {"authorization": "Bearer secret"}


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    app = ProjectApps(tmp_path).guarded(Guard(token="secret", proxy=urlsplit(PUBLIC)))
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


@pytest.mark.parametrize("base", ["/barograph", ""])
@pytest.mark.parametrize("host", ["127.0.0.1:8790", "runs.example.com"])
def test_a_proxy_may_remove_the_base_path_and_replace_the_host_or_not(base: str, host: str, client: TestClient):
    """Either way the page and the API are served, and the page's files are found."""
    headers = {**BEARER, "host": host}
    for path in ("/", "/api/runs", "/bundle/page.css", "/bundle/page.js"):
        assert client.get(f"{base}{path}", headers=headers).status_code == 200
    assert client.get(f"{base}/api/runs", headers={**headers, "host": "evil.example"}).status_code == 421
    assert client.get(f"{base}/api/runs", headers={"host": host}).status_code == 401


def test_addresses_that_a_browser_gets_have_the_base_path(client: TestClient):
    """Without a slash at its end the page's own addresses would lead elsewhere."""
    entered = client.get("/?token=secret&tab=charts")
    assert entered.headers["location"] == "/barograph/?tab=charts"
    assert entered.headers["set-cookie"].endswith("; Path=/barograph/; HttpOnly; SameSite=Strict; Secure")
    bare = client.get("/barograph?token=secret")
    assert (bare.status_code, bare.headers["location"]) == (307, "/barograph/?token=secret")
    assert client.get("/barograph").headers["location"] == "/barograph/"
    assert client.get("/barographs/api/runs", headers=BEARER).status_code == 404


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://runs.example.com", 200), ("http://127.0.0.1", 200), ("https://evil.example", 403), ("http://[", 403)],
)
def test_only_the_own_page_may_change_something(origin: str, status: int, client: TestClient):
    """Its origin is the proxy's, whatever host the proxy asks for."""
    headers = {**BEARER, "origin": origin, "content-type": "application/json"}
    assert client.post("/api/views", content=b'{"name": "a", "state": "b"}', headers=headers).status_code == status


def test_the_address_that_is_printed_is_that_of_the_proxy(tmp_path: Path):
    """And over TLS that of the server itself."""
    assert address("127.0.0.1", 8790, "t", TeamOptions(proxy=PUBLIC)) == f"{PUBLIC}?token=t"
    assert address("127.0.0.1", 8790, None, TeamOptions(proxy="http://host")) == "http://host/"


@pytest.mark.parametrize("proxy", ["runs.example.com", "ftp://host/", "https://", "https://host:x/", "https://[", ""])
def test_an_address_that_is_none_is_an_error(proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With an example of one."""
    assert main(["up", str(tmp_path), "--behind-proxy", proxy]) == 1
    assert "expected an address such as https://host/barograph/" in capsys.readouterr().err


def test_the_page_works_below_a_base_path(serve: Serve, demo: barograph.Run, visit: Open):
    """It lists the run, draws its charts and gets live events, all by addresses below its own."""
    proxy = "http://127.0.0.1:1/barograph/"
    client = serve(token="secret", options=TeamOptions(proxy=proxy))
    page = visit(f"http://127.0.0.1:{client.base_url.port}/barograph/?token=secret")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.goto(f"http://127.0.0.1:{client.base_url.port}/barograph/?run=demo&tab=charts")
    page.wait_for_selector("canvas")
    assert "/barograph/api/live" in asked
    assert [path for path in asked if not path.startswith("/barograph/")] == []


def test_a_certificate_is_used(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """By any name that it has; a wrong one is an error, and so is one without its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=team"
    names = ["-addext", "subjectAltName=DNS:team.example,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *made.split(), *names], check=True, capture_output=True)
    options = TeamOptions(certificate=certificate, key=key)
    client = serve(token="secret", options=options, verify=ssl.create_default_context(cafile=str(certificate)))
    answer = client.get("/api/runs", headers={**BEARER, "host": "team.example"})
    assert answer.status_code == 200
    assert client.get("/?token=secret").headers["set-cookie"].endswith("; Secure")
    assert address("127.0.0.1", 8790, None, options) == "https://127.0.0.1:8790/"
    with pytest.raises(ServingError, match="cannot use the certificate"):
        TeamOptions(certificate=key, key=certificate)
    assert main(["up", str(tmp_path), "--tls-cert", str(certificate)]) == 1
    assert "give both --tls-cert and --tls-key" in capsys.readouterr().err
