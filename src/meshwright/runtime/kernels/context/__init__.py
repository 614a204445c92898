"""Attention when the ranks of cp each have a part of every sequence."""
