"""Errors of predictions: parts of the error of step times, intervals, and the probability that a plan fits."""
