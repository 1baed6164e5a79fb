"""The page's files: served from the package one by one, and put together with the data of runs as a report in one HTML
file.

A file on disk cannot import other files, so the report has the bundled script, which `npm run bundle` makes in
development and which is committed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent / "web"

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


BUNDLE = "bundle/report.js"

STYLES = "bundle/page.css"

PLOT_LIBRARY = "vendor/uPlot-1.6.32.min"

TEXT_LIBRARIES = {"vendor/marked-18.2.0.min": "marked", "vendor/temml-0.13.5.min": "Temml"}
"""Libraries that render the texts of samples and notes, with their names."""

BUNDLED = {"vendor/lit-html-3.3.3": "lit-html"}
"""The library in the page's own script, with its name."""


def report_page(data: dict[str, Any], web: Path = WEB) -> str:
    """Return the HTML of a report; ``data`` is the result of ``report_data`` or of ``with_curves``."""
    style = _read(web, STYLES)
    libraries = {PLOT_LIBRARY: "uPlot"} | (TEXT_LIBRARIES if data.get("samples") or "blocks" in data else {})
    scripts = [*(_read(web, f"{library}.js") for library in libraries), _read(web, BUNDLE)]
    policy = f"default-src 'none'; img-src data: blob:; script-src {_hashes(scripts)}; style-src {_hashes([style])}"
    title = str(data["title"] if "blocks" in data else data["details"]["info"].get("name") or "run")
    return "\n".join((
        "<!doctype html>",
        _licence_notice(web, libraries | BUNDLED),
        '<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_escape(title)} · barograph</title>",
        f"<style>{style}</style>",
        "</head>\n<body>",
        f'<script type="application/json" id="report-data">{_json_for_html(data)}</script>',
        *(f"<script>{script}</script>" for script in scripts[:-1]),
        f'<script type="module">{scripts[-1]}</script>',
        "</body>\n</html>\n",
    ))  # fmt: skip


def _licence_notice(web: Path, libraries: dict[str, str]) -> str:
    """Return a comment with the licences of the libraries, which must be in every copy of them."""
    texts = {name: _read(web, f"{file.removesuffix('.min')}.LICENSE.txt").strip() for file, name in libraries.items()}
    notices = "\n\n".join(f"This file contains {name}\n\n{text}" for name, text in texts.items())
    return f"<!--\n{notices}\n-->"


def _read(web: Path, name: str) -> str:
    return (web / name).read_text(encoding="utf-8")


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _json_for_html(data: dict[str, Any]) -> str:
    """Encode data so that no HTML parser finds a tag in it."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, default=str).replace("<", "\\u003c")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
