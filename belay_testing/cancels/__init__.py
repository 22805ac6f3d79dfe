"""Cancellation at every await, once and again, and what is left behind by it."""
