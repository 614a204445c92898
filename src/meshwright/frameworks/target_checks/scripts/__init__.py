"""Programs run in a target's own Python: its parser on exported files, and a dry run of one step."""
