"""Build the documentation site from the pages of the repository; a broken link or anchor is an error.

    python scripts/build_site.py

Pages keep their paths, so that a link means the same in the repository and on the site. Needs the extra ``site``.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("docs", "benchmarks", "examples")
LEFT_OUT = shutil.ignore_patterns("*.py", "__pycache__", "golden", "mutation")


MARKS = re.compile(r"^```(\w+) (.+)$", re.MULTILINE)
"""First lines of blocks with marks for the tests of commands."""


def _titled(line: re.Match[str]) -> str:
    """Return the first line of a block as the site reads it: a file's name is its title, other marks are left out."""
    file = re.search(r"file=(\S+)", line[2])
    return f'```{line[1]} title="{file[1]}"' if file else f"```{line[1]}"


def main() -> None:
    """Copy the pages, then build."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=LEFT_OUT)
    for file in FILES:
        shutil.copy(ROOT / file, PAGES / file)
    for page in PAGES.rglob("*.md"):
        page.write_text(MARKS.sub(_titled, page.read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    sys.exit(subprocess.run(command, check=False, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
