"""A page to ask planning questions in a browser, and the verbs as an HTTP interface (extra ``web``).

``questions`` read requests of a browser, ``answers`` asks the verbs, ``workers`` runs that in processes of their own,
``access_checks`` refuses foreign hosts and large bodies, and ``server`` joins them.
"""
