"""Options of a sweep or search that do not change its results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ndpsim.base.arguments import flag, path_of, text
from ndpsim.base.errors import InputError
from ndpsim.base.options.swept import JOBS


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Where and how points run and are stored; see `ndpsim.sweep`.

    Raises:
        InputError: an option is invalid.
    """

    out: str | os.PathLike[str] | None = None
    jobs: int | None = None
    cluster: str | None = None
    retry_failed: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        for name in ("retry_failed", "force"):
            flag(getattr(self, name), name)
        _ = self.folder
        if self.jobs is not None:
            JOBS.checked(self.jobs)
        if self.jobs is not None and self.cluster is not None:
            problem = "the cluster says how many points run at once; leave it out"
            raise InputError(problem, "conflict", key="jobs")
        if self.cluster is not None and not text(self.cluster, "cluster").strip():
            problem = "is empty: give the address of a scheduler, or its file"
            raise InputError(problem, "missing", key="cluster")

    @property
    def folder(self) -> Path | None:
        """The folder of points and tables; None: nothing is stored."""
        return None if self.out is None else path_of(self.out, "out")
