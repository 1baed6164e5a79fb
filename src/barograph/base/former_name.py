"""The name that the project had in versions 0.1 and 0.2, which their runs have on disk: read as the present one."""

from pathlib import Path

FORMER, PRESENT = "windsock", "barograph"
FORMER_SEGMENT_MAGIC = FORMER.upper().encode()


def present(text: str) -> str:
    """Return what is written today for a name, a source, a tag or a producer of a former version."""
    is_former = text.startswith(FORMER) and text[len(FORMER) : len(FORMER) + 1] in ("", "/", ":", ".")
    return PRESENT + text[len(FORMER) :] if is_former else text


def runs_folder(parent: Path) -> Path:
    """Return the directory of the runs below a folder. One of a former version is used on if it is the only one."""
    folder, former = (parent / f"{name}-runs" for name in (PRESENT, FORMER))
    return former if former.is_dir() and not folder.exists() else folder
