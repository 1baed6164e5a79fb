"""Rejected requests: foreign hosts and origins, missing tokens, paths outside the directory."""

import re
import socket
import time
from pathlib import Path

import pytest
from serving_runs import Serve

import barograph
from barograph.apps.page.http.guard import Allowed, Guard, RejectedRequest
from barograph.apps.page.http.serving import address, token_for


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example", "[::1", "a b", "127.0.0.1/x"]
)
def test_a_foreign_host_header_is_rejected(host: str, serve: Serve):
    """DNS rebinding gets neither the page nor the API."""
    client = serve()
    for path in ("/", "/api/runs"):
        response = client.get(path, headers={"host": host})
        assert response.status_code in (400, 421)
        assert b"runs" not in response.content


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:80", "LOCALHOST"])
def test_loopback_by_any_name_is_served(host: str, serve: Serve):
    """With any port, because tunnels and forwarded ports change it."""
    assert serve().get("/api/about", headers={"host": host}).status_code == 200


def test_a_proxy_of_colab_is_served_where_notebooks_may_frame_the_page():
    """Colab shows a port of its machine under such a name; elsewhere it is a foreign host."""
    for host in ("abc-8790-colab.googleusercontent.com", "8790-m-s-abc.us-central1-0.prod.colab.dev"):
        assert isinstance(Guard().check("GET", "/", "", {"host": host}), RejectedRequest)
        assert Guard(framed=True).check("GET", "/", "", {"host": host}) == Allowed()
    for host in ("evilgoogleusercontent.com", "colab.dev.evil.example", "evil.example"):
        assert isinstance(Guard(framed=True).check("GET", "/", "", {"host": host}), RejectedRequest)


def test_every_request_needs_the_token(serve: Serve, demo: barograph.Run):
    """In a header, once in the address, then in a cookie; a wrong one is rejected."""
    client = serve(token="secret-token")
    assert client.get("/").status_code == 401
    assert client.get("/api/runs").status_code == 401
    assert client.get("/api/runs?token=secret-toke").status_code == 401
    assert client.get("/api/runs", headers={"authorization": b"Bearer \xe9"}).status_code == 401
    assert client.get("/api/runs", headers={"authorization": "Bearer secret-token"}).status_code == 200
    entered = client.get("/?token=secret-token&tab=charts")
    assert (entered.status_code, entered.headers["location"]) == (303, "/?tab=charts")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/api/runs").status_code == 200  # with the cookie


@pytest.mark.parametrize("token", ["plain-token_1", "a b;c=d", 'quo"ted\\', "naïve 令牌", "100%25"])
def test_any_token_works_in_address_and_cookie(token: str, serve: Serve):
    """Special characters are encoded; other cookies beside it do not matter."""
    client = serve(token=token)
    port = client.base_url.port
    entered = client.get("/", params={"token": token})
    assert entered.status_code == 303
    sent = entered.headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    for cookie in (sent, f'a="b; c"; {sent}', f"barograph_{port}=wrong; {sent};", f"x; =y; {sent}"):
        assert client.get("/api/about", headers={"cookie": cookie}).status_code == 200
    for cookie in (f"x{sent}", sent.replace("barograph_", "barograph"), sent[:-1], f"barograph_{port}", ""):
        assert client.get("/api/about", headers={"cookie": cookie}).status_code == 401


def test_the_time_of_a_check_grows_with_the_size_of_the_headers_only():
    """Eight times the size takes far less than the 64 times of a quadratic parser."""
    guard = Guard("127.0.0.1", 8790, "secret")

    def seconds(repeats: int) -> float:
        backslashes, fields = "\\\\" * repeats, "token=x&" * repeats
        headers = {"host": "127.0.0.1", "cookie": f'barograph_8790="{backslashes}"; a="{backslashes}"'}
        began = time.process_time()
        assert isinstance(guard.check("GET", "/", fields, headers), RejectedRequest)
        return time.process_time() - began

    small = min(seconds(8_000) for _ in range(3))
    assert seconds(64_000) < 25 * small + 0.25


@pytest.mark.parametrize(
    "target", ["//evil.example/", "/%2Fevil.example/", "/%5Cevil.example/", "/%5C/evil.example", "http://evil.example/"]
)
def test_the_redirect_stays_on_this_server(target: str, serve: Serve):
    """The address without the token is never one of another host."""
    port = serve(token="secret").base_url.port
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(f"GET {target}?token=secret HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        response = b"".join(iter(lambda: raw.recv(65536), b""))
    assert response.startswith(b"HTTP/1.1 303")
    location = re.search(rb"(?i)location: (\S+)", response)[1].decode()  # type: ignore[index]
    assert re.match(r"/(?![/\\])", location)


def test_only_loopback_needs_no_token():
    """Another host gets a random one, which is in the address."""
    assert token_for("127.0.0.1", None) is None
    assert token_for("::1", None) is None
    made = token_for("0.0.0.0", None)
    assert made is not None
    assert len(made) >= 32
    assert made != token_for("0.0.0.0", None)
    assert address("192.168.0.7", 80, "t&k") == "http://192.168.0.7:80/?token=t%26k"


def test_a_server_on_all_addresses_accepts_only_its_own_names():
    """Any IP address and the machine's name; another name may be DNS rebinding."""
    guard = Guard("0.0.0.0", 8790, "t")
    own = {"authorization": "Bearer t"}
    for host, kind in (("10.0.0.3:8790", Allowed), (socket.gethostname(), Allowed), ("evil.example", RejectedRequest)):
        assert isinstance(guard.check("GET", "/", "", {**own, "host": host}), kind)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
    ],
)
def test_requests_of_another_site_change_nothing(headers: dict[str, str], serve: Serve, demo: barograph.Run):
    """A request that another site's page can make a browser send is rejected."""
    client = serve()
    sent = {"content-type": "application/json", **headers}
    assert client.patch("/api/runs/demo", content=b'{"pinned": true}', headers=sent).status_code == 403
    assert not client.get("/api/runs").json()["runs"][0]["pinned"]
    own = {"content-type": "application/json", "origin": str(client.base_url).rstrip("/")}
    assert client.patch("/api/runs/demo", content=b'{"pinned": true}', headers=own).status_code == 200


def test_no_path_leaves_the_directory(serve: Serve, demo: barograph.Run, tmp_path: Path):
    """Keys and files are looked up in lists, so that ``..`` finds nothing, however it is encoded."""
    (tmp_path / "secret.txt").write_text("treasure")
    port = serve().base_url.port
    for path in (
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/%2e%2e/secret.txt",
        "/api/runs/../../secret.txt/details",
        "/api/runs/..%2f..%2f/details",
        "/api/runs/%2e%2e/details",
        "//etc/passwd",
        "/web/../../app.py",
        "/%00",
    ):
        with socket.create_connection(("127.0.0.1", port)) as raw:  # HTTP clients normalise paths, an attacker does not
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            response = b"".join(iter(lambda raw=raw: raw.recv(65536), b""))  # type: ignore[misc]
        assert re.match(rb"HTTP/1\.1 (404|400|405)", response), (path, response[:80])
        assert b"treasure" not in response


def test_responses_have_a_strict_content_policy(serve: Serve):
    """Rejections too: only the page's own scripts run, nothing frames the page, types are not guessed."""
    client = serve()
    for response in (client.get("/"), client.get("/api/about"), client.get("/", headers={"host": "evil.example"})):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"


def test_a_body_that_is_too_large_or_not_json_is_rejected(serve: Serve, demo: barograph.Run):
    """With a status that says which; so are unknown fields and runs."""
    client = serve()
    json_type = {"content-type": "application/json"}
    assert client.patch("/api/runs/demo", content=b"x" * (2 << 20), headers=json_type).status_code == 413
    assert client.patch("/api/runs/demo", content=b"[" * 5000, headers=json_type).status_code == 400
    assert client.patch("/api/runs/demo", json={"owner": "me"}).status_code == 400
    assert client.patch("/api/runs/nobody", json={"pinned": True}).status_code == 404
