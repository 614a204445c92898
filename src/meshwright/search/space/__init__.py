"""The space of legal plans: degrees, choices, variants, schedules, constraints of the user."""
