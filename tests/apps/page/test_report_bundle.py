"""The committed bundle of the page's modules, and the libraries in a report."""

import hashlib
import re
from pathlib import Path

import barograph
from barograph.apps.cli import main
from barograph.apps.page.files import BUNDLE, WEB


def test_the_bundle_is_current():
    """Its first line has the digest of the modules it was made of; ``npm run bundle`` updates it."""
    heads = {(WEB / file).read_text(encoding="utf-8").split("\n", 1)[0] for file in (BUNDLE, "bundle/page.js")}
    digest = hashlib.sha256()
    for file in sorted(file.relative_to(WEB).as_posix() for file in WEB.rglob("*.js")):
        if not file.startswith(("bundle/", "vendor/")):
            digest.update(f"{file}\n{(WEB / file).read_text(encoding='utf-8')}".encode())
    assert {head.rpartition("sha256 ")[2] for head in heads} == {digest.hexdigest()}


def test_a_report_has_the_licences_of_its_libraries(demo: barograph.Run, tmp_path: Path):
    """As one comment, which contains the texts that the package ships."""
    file = tmp_path / "report.html"
    assert main(["report", str(demo.path), "-o", str(file)]) == 0
    comment = re.search(r"<!--(.*?)-->", file.read_text(encoding="utf-8"), re.DOTALL)[1]  # type: ignore[index]
    licences = [path.read_text(encoding="utf-8").strip() for path in WEB.glob("vendor/*.LICENSE.txt")]
    assert licences
    for licence in licences:
        assert "Permission is hereby granted" in licence
        assert licence in comment
