"""Property tests have no deadline: a busy machine is no fault of the code."""

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")
