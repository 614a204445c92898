"""HTML of answers: the tables of the terminal and static pictures, without scripts."""
