"""The verb ``plan``: search one cluster or several, place nodes and experts, propose the best plans."""
