"""Tests of tokens: what they grant, what the file has of them, and the command that manages them."""

import json
import time
from pathlib import Path

import pytest

from barograph.apps.cli import main
from barograph.delivery.transfer.tokens import Grant, TokenError, TokenFile


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path)


def test_a_token_grants_its_rights_in_its_project(file: TokenFile):
    """And nothing elsewhere; one without a project grants them everywhere, and admin is every right."""
    write = file.check(file.new(["write"], "lab"))
    assert isinstance(write, Grant)
    assert write.allows("write", "lab")
    assert not any(write.allows(*asked) for asked in (("read", "lab"), ("write", "other"), ("write", None)))
    everywhere = file.check(file.new(["read"]))
    assert isinstance(everywhere, Grant)
    assert everywhere.allows("read", "lab")
    assert everywhere.allows("read")
    assert not everywhere.allows("write", "lab")
    admin = file.check(file.new(["admin"], "lab"))
    assert isinstance(admin, Grant)
    assert admin.allows("read", "lab")
    assert admin.allows("write", "lab")
    assert not admin.allows("read", "other")


def test_the_file_is_private_and_has_hashes_only(file: TokenFile):
    """Nobody who reads it can use a token."""
    token = file.new(["admin"])
    assert file.path.stat().st_mode & 0o777 == 0o600
    secret = token.split("_", 2)[2]
    assert len(secret) >= 43
    assert secret not in file.path.read_text()
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["tokens.json", "tokens.lock"]


def test_wrong_ended_and_revoked_tokens_grant_nothing(file: TokenFile):
    """Whatever looks like a token; one that is known says why."""
    token = file.new(["admin"])
    id = token.split("_")[1]
    for wrong in ("", "wsk", "wsk_", f"wsk_{id}", f"wsk_{id}_", token[:-1], f"{token}x", token[1:], token.upper()):
        assert file.check(wrong) == "the token is unknown"
    for wrong in (f"wsk__{'a' * 43}", "wsk_" + "_" * 5000, "\udc80", token.replace(id, "22222222")):
        assert file.check(wrong) == "the token is unknown"
    assert isinstance(file.check(token), Grant)
    ended = file.new(["read"], ends=time.time() - 1)
    assert "is ended" in str(file.check(ended))
    TokenFile(file.path.parents[1]).revoke(id)  # by another process
    assert file.check(token) == f"the token {id} is revoked"
    file.path.unlink()
    assert file.check(token) == "the token is unknown"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"tokens": [{}]}', '{"tokens": [{"id": 3}]}', '{"tokens": {}}'])
def test_a_file_that_cannot_be_read_lets_nobody_in(content: str, file: TokenFile):
    """The command says so, and does not replace it."""
    token = file.new(["admin"])
    file.path.write_text(content)
    assert file.check(token) == "the token is unknown"
    with pytest.raises(TokenError, match="cannot read the tokens"):
        file.new(["read"])
    assert file.path.read_text() == content


def test_the_command_adds_lists_and_revokes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The token is printed once; the list has no secret."""
    where = ["--dir", str(tmp_path)]
    assert main(["token", "new", "--project", "a/b", "--write", "--ends", "30d", *where]) == 0
    token = capsys.readouterr().out.strip()
    grant = TokenFile(tmp_path).check(token)
    assert grant == Grant(frozenset({"write"}), "a%2Fb")
    [stored] = json.loads(TokenFile(tmp_path).path.read_text())["tokens"]
    assert stored["ends"] - stored["created"] == pytest.approx(30 * 86400, abs=5)
    assert main(["token", "ls", *where]) == 0
    listed = capsys.readouterr().out
    assert stored["id"] in listed
    assert "a%2Fb  write  made just now  ends in 30d 00h" in listed or "ends in 29d 23h" in listed
    assert token not in listed
    assert main(["token", "revoke", stored["id"], *where]) == 0
    assert isinstance(TokenFile(tmp_path).check(token), str)
    assert main(["token", "ls", *where]) == 0
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "--project", "p"], "needs a right"),
        (["revoke"], "give the id"),
        (["ls", "abc"], "give the id"),
        (["revoke", "abc"], "no token has the id 'abc'"),
        (["ls", "--dir", "nowhere"], "nowhere does not exist"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With exit code 1."""
    assert main(["token", *arguments, *([] if "--dir" in arguments else ["--dir", str(tmp_path)])]) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["token", "new", "--read", "--ends", "soon"])
