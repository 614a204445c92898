"""Progress of a long verb on a terminal; silent where standard error is none."""

import sys


def tell_terminal(what: str, part: float) -> None:
    """Show what is being done and which part of all is done, in one line that the next call overwrites."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{part:4.0%} {what:60.60}")
        sys.stderr.flush()
