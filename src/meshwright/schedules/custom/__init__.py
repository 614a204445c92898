"""Custom schedules: lists from a CSV file, their inferred shape and their checks."""
