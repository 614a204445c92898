"""Have every file of a launch read by the schema or parser of the system that will read it."""
