"""Tell the seconds of each folder of tests beside its share of eight minutes on two workers; nothing fails for it."""

from collections import Counter
from pathlib import Path

BUDGETS = Path(__file__).with_name("folder_seconds.txt")


def budgets() -> dict[str, int]:
    """Seconds of one worker that each folder under ``tests`` may take."""
    lines = BUDGETS.read_text(encoding="utf-8").splitlines()
    return {folder: int(seconds) for folder, seconds in (line.split() for line in lines)}


def pytest_terminal_summary(terminalreporter):
    """Tell the folders from the slowest, those above their share by name."""
    spent = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "nodeid") and hasattr(report, "duration"):
                spent[folder_of(report.nodeid)] += report.duration
    if sum(spent.values()) < 1:
        return
    shares = budgets()
    terminalreporter.section("seconds of all workers, by folder (share of 8 minutes on 2 workers)", "-")
    for folder, seconds in spent.most_common():
        terminalreporter.write_line(f"{seconds:8.1f}  {folder} ({shares.get(folder, 0)})")
    over = [folder for folder, seconds in spent.items() if seconds > shares.get(folder, 0)]
    if over:
        terminalreporter.write_line(f"above their share: {', '.join(sorted(over))}")


def folder_of(nodeid: str) -> str:
    """The folder under ``tests`` that a test lies in; ``tests`` itself for files at the top."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"
