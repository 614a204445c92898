"""The page of a report: one HTML file that needs nothing else, drawn from the report's document."""
