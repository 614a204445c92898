"""The verb ``launch``: job files that start ``meshwright run`` on a cluster, checked and submitted."""
