"""The verb ``schedule``: named, solver-found and custom pipeline schedules with their figures."""
