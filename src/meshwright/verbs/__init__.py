"""The longer verbs, one file each: they combine the floors below; ``api`` passes them to the command line."""
