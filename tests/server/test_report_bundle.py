"""The committed bundle of the page's modules."""

import hashlib
import re

from windsock.server.http.files import WEB
from windsock.server.report_file import BUNDLE


def test_the_bundle_is_current():
    """Its first line has the digest of the modules it was made of; ``npm run bundle`` updates it."""
    head = (WEB / BUNDLE).read_text(encoding="utf-8").split("\n", 1)[0]
    digest = hashlib.sha256()
    for file in sorted(file.relative_to(WEB).as_posix() for file in WEB.rglob("*.js")):
        if not file.startswith(("bundle/", "vendor/")):
            digest.update(f"{file}\n{(WEB / file).read_text(encoding='utf-8')}".encode())
    assert re.search(r"sha256 (\w+)", head)[1] == digest.hexdigest()  # type: ignore[index]
