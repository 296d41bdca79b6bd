"""Executes runs in their folders; a run replaces the tables of another only if forced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from ndpsim.studies.sweeps.executors.cluster import run_on_cluster
from ndpsim.studies.sweeps.executors.local import chosen_jobs, run_locally
from ndpsim.studies.sweeps.points import SweepRun


def execute(run: SweepRun, name: str, described: Mapping[str, Any]) -> None:
    """Run all points, after writing `described` to the file `name` of the run's folder.

    Raises:
        InputError: the folder cannot be written, or holds the tables of another run that must not be
            replaced, or another run took the folder meanwhile, or the cluster does not exist.
    """
    options = run.options
    jobs = chosen_jobs(options.jobs)
    with closing(run):
        run.claim(name, described)
        if options.cluster is None:
            run.take(run_locally(run.command, run.tasks(), jobs))
        else:
            run.take(run_on_cluster(run.command, run.tasks(), options.cluster))
