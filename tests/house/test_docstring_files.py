"""Docstrings name files that exist."""

import re

from source_tree import PACKAGE, ROOT, module_name, modules, room

OWN_FILE = re.compile(r"``((?:[\w-]+/)*[\w-]+\.py)``")
ABOUT_OTHERS = {"frameworks", "ingestion", "launchers"}
"""Packages whose docstrings cite files of frameworks and launchers, as those of ``stack_limits`` do."""
FILES_OF_OTHERS = re.compile(r"modeling_\w+|torch/|megatron/|pipeline_parallel/schedules|moe/router")


def test_files_that_docstrings_name_exist():
    missing = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in modules()
        if room(module_name(path)) not in ABOUT_OTHERS and path.parent.name != "stack_limits"
        for name in OWN_FILE.findall(path.read_text(encoding="utf-8"))
        if not FILES_OF_OTHERS.match(name)
        and not any((base / name).is_file() for base in (path.parent, path.parent.parent, PACKAGE, ROOT))
    ]
    assert not missing
