"""Source mutants: draw them, map lines to tests, and run the tests of a mutated line."""
