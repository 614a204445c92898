"""Pipeline time with its bubbles: closed forms of GPipe and 1F1B, simulated action lists for other schedules."""
