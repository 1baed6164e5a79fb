"""A report as one HTML file: the page's script and styles with the data inside, to send to a colleague.

The script has all of the page's modules: a file on disk cannot import other files, as the served page does.
``npm run bundle`` makes it in development and it is committed, so that windsock itself never needs Node.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from windsock.server.http.files import WEB

BUNDLE = "bundle/report.js"
PLOT_LIBRARY = "vendor/uPlot-1.6.32.min"
TEXT_LIBRARIES = {"vendor/marked-18.2.0.min": "marked", "vendor/temml-0.13.5.min": "Temml"}
"""Libraries that render the texts of samples and notes, with their names."""


def report_page(data: dict[str, Any], web: Path = WEB) -> str:
    """Return the HTML of a report; ``data`` is the result of ``report_data`` or of ``with_curves``."""
    styles = [_read(web, f"{PLOT_LIBRARY}.css"), _read(web, "page.css")]
    libraries = {PLOT_LIBRARY: "uPlot"} | (TEXT_LIBRARIES if data.get("samples") or "blocks" in data else {})
    scripts = [*(_read(web, f"{library}.js") for library in libraries), _read(web, BUNDLE)]
    policy = f"default-src 'none'; img-src data: blob:; script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    title = str(data["title"] if "blocks" in data else data["details"]["info"].get("name") or "run")
    return "\n".join((
        "<!doctype html>",
        _licence_notice(web, libraries),
        '<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_escape(title)} · windsock</title>",
        *(f"<style>{style}</style>" for style in styles),
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
