"""Cancellation at every await, once or several times, and a check that nothing is left behind."""
