"""The parts of the page of pipeline schedules, `schedules.py` puts them together."""
