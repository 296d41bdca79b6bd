"""The inner steps of Numba that ndpsim builds on are those of the releases that it was tried with."""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ndpsim.base.jit import inner_steps, releases

pytestmark = pytest.mark.skipif(
    not releases.IS_TRIED, reason="kernels are compiled by what is public in Numba"
)

#: Of the source of each step, the first digits of its SHA-256; the same in all releases of TRIED.
SOURCES = {
    "CPUCodeLibrary.finalize": "4b4c34b83488a72f",
    "CPUCodeLibrary._finalize_final_module": "95bbf4fcbb90ed99",
    "CPUCodeLibrary._optimize_final_module": "e405bd473752613b",
    "CodeLibrary._raise_if_finalized": "1da89a71b49d9877",
    "CompileResult._rebuild": "44fa9dc2255883ab",
    "CompileResult._reduce": "5f86eacfa5202c20",
    "CPUCodegen._pass_builder": "035dd9dd5f6dedc5",
    "DefaultPassBuilder.define_nopython_lowering_pipeline": "9e7ddc0e96eaaecf",
    "DefaultPassBuilder.define_typed_pipeline": "bd5ccc7ef772a33a",
    "DefaultPassBuilder.define_untyped_pipeline": "0cb11451d06eef49",
    "Dispatcher.compile": "0ab4aee15e79bb1d",
    "Dispatcher.get_call_template": "f15b62d0e9c0f605",
    "NativeLowering.run_pass": "0b482df4865451f4",
    "_make_subtarget": "ca842c5b0306130d",
    "populate_array": "e86886c14bfc63b2",
}


def changed(name: str, step: Callable[..., object]) -> str | None:
    """What is to be done about a step that is not the one that ndpsim was tried with; None: it is."""
    source = inspect.getsource(inspect.unwrap(step))
    if hashlib.sha256(source.encode()).hexdigest()[:16] == SOURCES[name]:
        return None
    version = releases.numba.__version__
    return f"Numba {version} changes {name}: see whether ndpsim/base/jit/inner_steps.py still fits, then renew SOURCES"


@pytest.mark.parametrize("name", SOURCES)
def test_a_step_of_numba_that_ndpsim_builds_on_is_the_one_it_was_tried_with(name):
    assert changed(name, inner_steps.inner_steps()[name]) is None


def test_a_changed_step_is_named_with_the_release():
    said = changed("NativeLowering.run_pass", inner_steps.inner_steps()["CompileResult._reduce"])
    assert said.startswith(f"Numba {releases.numba.__version__} changes NativeLowering.run_pass: ")


def test_every_step_is_compared():
    assert set(inner_steps.inner_steps()) == set(SOURCES)


def test_the_project_allows_the_releases_that_its_inner_steps_were_tried_with_and_others():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert "numba>=0.62" in project["dependencies"]
    assert releases.numba.__version__ in releases.TRIED
