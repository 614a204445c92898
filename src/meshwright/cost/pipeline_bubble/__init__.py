"""Pipeline time with its bubbles: closed forms of GPipe and 1F1B; every other schedule's action lists played on
arrays."""
