"""A vocabulary spread over the pipeline ranks: passes of a rank's share, and its concurrent exchanges."""
