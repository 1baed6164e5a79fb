"""The committed bundle of the page's modules, and the libraries in a report."""

import hashlib
import re
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main
from barograph.apps.page.files import BUNDLE, STYLES, WEB


def head_digest(file: str) -> str:
    """Return the digest in the first line of a file of the bundle."""
    return re.search("sha256 ([0-9a-f]+)", (WEB / file).read_text(encoding="utf-8").split("\n", 1)[0])[1]  # type: ignore[index]


@pytest.mark.parametrize(("kind", "made"), [("js", (BUNDLE, "bundle/page.js")), ("css", (STYLES,))])
def test_the_bundle_is_current(kind: str, made: tuple[str, ...]):
    """The first line of its files has the digest of what they were made of; ``npm run bundle`` updates it."""
    digest = hashlib.sha256()
    for file in sorted(file.relative_to(WEB).as_posix() for file in WEB.rglob(f"*.{kind}")):
        if not file.startswith(("bundle/", "vendor/")):
            digest.update(f"{file}\n{(WEB / file).read_text(encoding='utf-8')}".encode())
    assert {head_digest(file) for file in made} == {digest.hexdigest()}


def test_a_report_has_the_licences_of_its_libraries(demo: barograph.Run, tmp_path: Path):
    """As one comment, which contains the texts that the package ships."""
    file = tmp_path / "report.html"
    assert main(["report", str(demo.path), "-o", str(file)]) == 0
    comment = re.search(r"<!--(.*?)-->", file.read_text(encoding="utf-8"), re.DOTALL)[1]  # type: ignore[index]
    licences = [path.read_text(encoding="utf-8").strip() for path in WEB.glob("vendor/*.LICENSE.txt")]
    assert licences
    for licence in licences:
        assert re.search("Permission is hereby granted|Redistribution and use", licence)
        assert licence in comment
