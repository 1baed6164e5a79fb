"""The page's files, served from the package: few and small, so they stay in memory, compressed once."""

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
TEXT_TYPES = ("text/", "application/json", "application/manifest", "image/svg")
MIN_GZIP_BYTES = 400


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file with its headers."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    etag: str


class StaticFiles:
    """The files of a folder by their URL path; a changed file is read again."""

    def __init__(self, folder: Path = WEB) -> None:
        self._folder = folder
        self._loaded: dict[str, tuple[tuple[float, int], StaticFile]] = {}

    def get(self, path: str) -> StaticFile | None:
        """Return the file at a path, or None. Paths are looked up in a listing, so ``..`` finds nothing."""
        listed = {f"/{file.relative_to(self._folder).as_posix()}": file for file in self._folder.rglob("*")}
        file = listed.get("/index.html" if path == "/" else path)
        if file is None or not file.is_file():
            return None
        stat = file.stat()
        version = stat.st_mtime, stat.st_size
        loaded = self._loaded.get(path)
        if loaded is None or loaded[0] != version:
            loaded = self._loaded[path] = version, _load(file)
        return loaded[1]


def _load(file: Path) -> StaticFile:
    body = file.read_bytes()
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    is_text = kind.startswith(TEXT_TYPES)
    gzipped = gzip.compress(body, 9, mtime=0) if is_text and len(body) > MIN_GZIP_BYTES else None
    etag = f'"{hashlib.blake2b(body, digest_size=9).hexdigest()}"'
    return StaticFile(body, gzipped, f"{kind}; charset=utf-8" if is_text else kind, etag)
