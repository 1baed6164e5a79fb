"""mkdocs hook: add the pages and llms.txt in the root of the repository to the site, and fix the links of pages.

On GitHub a page in ``docs/`` links to ``../CONTRIBUTING.md`` and the changelog links to ``docs/trackers.md``. On the
site all pages are in one folder, and other files of the repository are links to GitHub.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ROOT_FILES = (*ROOT_PAGES, "llms.txt")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's files to those of the site."""
    for name in ROOT_FILES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page from places in the repository to places on the site."""
    folder = "" if page.file.src_uri in ROOT_PAGES else "docs"

    def rewrite(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        if target in ROOT_PAGES:
            return target
        if target.startswith("docs/"):
            return target.removeprefix("docs/")
        return f"{config.repo_url.rstrip('/')}/blob/main/{target}"

    return LINK.sub(rewrite, markdown)
