"""Many short plans as arrays: integer degrees, coded choices, distinct rows."""
