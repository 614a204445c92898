"""Run the folders whose tests share costly answers in one process each; the other files go where a process is free.

The answers are kept by ``functools.cache`` in a module of the folder, so that every process that runs one of its files
would compute them again.
"""

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

TOGETHER = ("tests/explanation/",)


class FoldersTogether(LoadFileScheduling):
    """``--dist loadfile``, with these folders as one file each."""

    def _split_scope(self, nodeid: str) -> str:
        return next(
            (folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid)
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadFileScheduling | None:
    """Take the place of ``--dist loadfile``."""
    return FoldersTogether(config, log) if config.getvalue("dist") == "loadfile" else None
