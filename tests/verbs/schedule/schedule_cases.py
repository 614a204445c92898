"""Questions about schedules, and files that answer them."""

from meshwright import api
from meshwright.verbs.schedule.schedule_request import ScheduleRequest

SIZE = {"stages": 4, "micro_batches": 8}


def schedule(name, **options):
    return api.schedule(str(name), ScheduleRequest(**options))


def lists_file(folder, *rows):
    """A CSV file with a row for each rank; rows may be written with spaces."""
    path = folder / "lists.csv"
    path.write_text("".join(",".join(row.split()) + "\n" for row in rows), encoding="utf-8")
    return path
