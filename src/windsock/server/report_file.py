"""A run as one file: the page's own modules and styles with the run's data inside, to send to a colleague.

The modules are those that are served. Each becomes a function that returns what it exports, in the order in which they
need each other, because a file that is opened from disk may not import others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from windsock.server.http.files import WEB

ENTRY = "page.js"
PLOT = "vendor/uPlot-1.6.32.min"
IMPORT = re.compile(r'^import \{ (?P<names>[^}]+) \} from "\./(?P<file>[\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class|let) (\w+))", re.MULTILINE)


def report_page(data: dict[str, Any], web: Path = WEB) -> str:
    """Return the HTML of a report; ``data`` is what ``report_data`` gives."""
    styles = [(web / f"{PLOT}.css").read_text(), (web / "page.css").read_text()]
    scripts = [(web / f"{PLOT}.js").read_text(), bundled(web)]
    rules = f"default-src 'none'; img-src data: blob:; script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    title = str(data["details"]["info"].get("name") or "run")
    return "\n".join((
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)} · windsock</title>",
        *(f"<style>{style}</style>" for style in styles),
        "</head>\n<body>",
        f'<script type="application/json" id="report-data">{_data(data)}</script>',
        f"<script>{scripts[0]}</script>",
        f'<script type="module">{scripts[1]}</script>',
        "</body>\n</html>\n",
    ))  # fmt: skip


def bundled(web: Path = WEB) -> str:
    """Return the page's modules as one."""
    sources: dict[str, str] = {}
    _gather(web, ENTRY, sources)
    return "\n".join(_wrapped(name, source) for name, source in sources.items())


def _gather(web: Path, name: str, sources: dict[str, str]) -> None:
    """Add a module behind those that it needs."""
    if name in sources:
        return
    source = (web / name).read_text(encoding="utf-8")
    for found in IMPORT.finditer(source):
        _gather(web, found["file"], sources)
    sources[name] = source


def _wrapped(name: str, source: str) -> str:
    exported = EXPORT.findall(source)
    body = IMPORT.sub(lambda found: f"const {{ {found['names']} }} = {_variable(found['file'])};\n", source)
    body = EXPORT.sub("", body)
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js').replace('-', '_')}"


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _data(data: dict[str, Any]) -> str:
    """Return JSON that no HTML parser can take for markup."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, default=str).replace("<", "\\u003c")


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
