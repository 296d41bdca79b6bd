"""The site: links out of `docs` lead to the files of the repository, and those files must exist."""

from __future__ import annotations

import logging
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(\.\.?/[^)#\s]*)(?=[)#])")
_log = logging.getLogger("mkdocs.hooks.site")  # warnings end a strict build


def repository() -> str:
    """The address of the repository: `pyproject.toml` states it."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def on_config(config: Any) -> Any:
    """Name the repository on each page."""
    config["repo_url"] = repository()
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave the folder of the pages to the repository."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def there(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[1]))
        if target == "docs" or (target.startswith("docs/") and not target.endswith(".py")):
            return found[1]
        if not (_ROOT / target).exists():
            _log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        return f"{repository()}/blob/main/{target}"

    return _LINK.sub(there, markdown)
