"""How this barograph was installed, and with that how an extra of it is."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install_command(extra: str = "", upgrade: bool = False) -> str:
    """Return a command that installs an extra: from the clone or repository that this installation came from."""
    extras, clone, repository = f"[{extra}]" if extra else "", *_origin()
    if clone is not None:
        what = "." if clone == Path.cwd() else str(clone)
        return f"pip install '{what}{extras}'"
    what = f"barograph{extras} @ {repository}" if repository else f"barograph{extras}"
    return f"pip install {'--upgrade ' if upgrade else ''}'{what}'"


def _origin() -> tuple[Path | None, str]:
    """Return the folder that pip installed from, or the repository; neither if it was an index (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution("barograph").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, ""
    url = str(found.get("url", ""))
    if "vcs_info" in found:
        return None, f"{found['vcs_info']['vcs']}+{url}"
    path = Path(unquote(urlsplit(url).path))
    return (path, "") if url.startswith("file:") and path.is_dir() else (None, "")
