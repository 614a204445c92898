"""Rules that a sound Program keeps: one file per subject, all of them run by ``validate_program.py``."""
