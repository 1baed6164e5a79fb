"""The page's own files, from the package: few and small, so they are held in memory, packed once."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

WEB = Path(__file__).parents[1] / "web"
TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain",
    ".md": "text/plain",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
TEXTUAL = ("text/", "application/json", "application/manifest", "image/svg")


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent."""

    body: bytes
    packed: bytes | None
    media_type: str
    etag: str


class Files:
    """The files below a folder by the path at which they are served; one that was changed is read again."""

    def __init__(self, folder: Path = WEB) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[float, int], File]] = {}

    def ahead(self) -> str:
        """Return the Link header of the page: what it will ask for, so that the browser asks at once."""
        modules = ", ".join(f"</{file.name}>; rel=modulepreload" for file in sorted(self._folder.glob("*.js")))
        return f"</api/runs>; rel=preload; as=fetch; crossorigin, {modules}"

    def get(self, path: str) -> File | None:
        """Return the file at a path; None where there is none. Only files that were listed can be asked for."""
        listed = {f"/{file.relative_to(self._folder).as_posix()}": file for file in self._folder.rglob("*")}
        file = listed.get("/index.html" if path == "/" else path)
        if file is None or not file.is_file():
            return None
        stat = file.stat()
        mark = stat.st_mtime, stat.st_size
        known = self._known.get(path)
        if known is None or known[0] != mark:
            known = self._known[path] = mark, _load(file)
        return known[1]


def _load(file: Path) -> File:
    body = file.read_bytes()
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    textual = kind.startswith(TEXTUAL)
    packed = gzip.compress(body, 9, mtime=0) if textual and len(body) > 400 else None
    etag = f'"{hashlib.blake2b(body, digest_size=9).hexdigest()}"'
    return File(body, packed, f"{kind}; charset=utf-8" if textual else kind, etag)
