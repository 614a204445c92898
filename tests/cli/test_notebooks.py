"""The notebooks of the tutorials are as their pages say, and run from the first cell to the last."""

import nbformat
import pytest
import write_notebooks
from nbclient import NotebookClient
from source_tree import ROOT

NAMES = sorted(path.stem for path in write_notebooks.TUTORIALS.glob("*.md"))
QUICK = ("will-it-fit",)


def test_notebooks_are_those_of_the_tutorials():
    written = {path.stem: path.read_text(encoding="utf-8") for path in write_notebooks.NOTEBOOKS.glob("*")}
    assert written == {name: write_notebooks.notebook(name) for name in NAMES}
    for text in written.values():
        nbformat.validate(nbformat.reads(text, as_version=4))


def test_links_lead_to_the_pages_of_the_tutorial():
    for name in NAMES:
        for link in write_notebooks.LINK.findall(write_notebooks.notebook(name)):
            assert (ROOT / "examples" / "notebooks" / link.split("#")[0]).resolve().exists(), link


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_notebook_runs(name, tmp_path):
    found = nbformat.reads(write_notebooks.notebook(name), as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(found, timeout=300, kernel_name="python3", resources=place).execute()
    shown = [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert not any(output.output_type == "error" for output in shown)
    assert not any("<progress" in output.get("data", {}).get("text/html", "") for output in shown)
