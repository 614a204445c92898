"""Rules of a legal plan: one file per subject, and the table of all rules in ``check_plan.py``."""
