"""A vocabulary that is spread over the pipeline ranks: passes of a rank's share, and exchanges beside them."""
