"""The report of a plan: everything that its page shows, as one document."""
