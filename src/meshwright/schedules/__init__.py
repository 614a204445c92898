"""Pipeline schedules: pure functions that order forward and backward passes on each pipeline rank."""
