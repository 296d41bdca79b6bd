"""The notebook runs from its first cell to its last, and shows what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first.ipynb"


@pytest.mark.filterwarnings("ignore")  # those of the notebook's server, whose releases are many
def test_the_first_notebook_runs(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}) for output in outputs]
    assert sum("image/png" in data for data in shown) == 2
    assert sum("text/html" in data for data in shown) == 2
    printed = "".join(output.get("text", "") for output in outputs)
    assert "bound by memory" in printed
    assert "4 ranks:" in printed


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)
