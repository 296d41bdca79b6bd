"""Reads claims and tolerances from their files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ndpsim.base.errors import InputError
from ndpsim.config.files import data_folder
from ndpsim.config.nodes import Node, line_of, parse, plain_of, read_text
from ndpsim.studies.claims.claim import SOURCES, Paper, ToleranceClass

M = TypeVar("M", bound=BaseModel)

_FOLDER = "validation/claims"
_PAPERS = ("trimoe", "edge", "cxl", "cache", "dali")  # the order in the README


def _validated(model: type[M], root: Node, file: Path) -> M:
    try:
        return model.model_validate(plain_of(root))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        keys = tuple(first["loc"])
        key = ".".join(map(str, keys)) or None
        raise InputError(str(first["msg"]), "form", file=file, line=line_of(root, keys), key=key) from None


def read_paper(file: Path) -> Paper:
    """The claims of a paper.

    Raises:
        InputError: the file cannot be read, or something in it is wrong; with its line.
    """
    return _validated(Paper, parse(read_text(file), str(file)), file)


@functools.cache
def read_papers() -> Mapping[str, Paper]:
    """All bundled claims, by the short names of their papers: the papers, other simulators, measurements."""
    files = sorted(data_folder(_FOLDER).glob("*.yaml"))
    papers = [read_paper(file) for file in files if file.stem != "tolerances"]
    return {paper.paper: paper for paper in sorted(papers, key=_place)}


def _place(paper: Paper) -> tuple[int, int]:
    index = _PAPERS.index(paper.paper) if paper.paper in _PAPERS else len(_PAPERS)
    return SOURCES.index(paper.source), index


def read_tolerances() -> Mapping[str, ToleranceClass]:
    """The classes of tolerance by name."""
    file = data_folder(_FOLDER) / "tolerances.yaml"
    root = parse(read_text(file), str(file))
    assert isinstance(root.value, dict)
    return {name: _validated(ToleranceClass, node, file) for name, node in root.value.items()}
