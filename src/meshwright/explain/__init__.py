"""Why a plan costs what it costs: where time and memory go, what its neighbours lose, what would change the answer."""
