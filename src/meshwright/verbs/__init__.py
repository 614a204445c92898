"""The longer verbs, one file each: they join the floors below, and ``api`` hands them to the command line."""
