"""Rules on the plan key ``synchronise``; fields are named ``synchronise.PLACE.KEY``."""
