"""Crashes at every store call and at every statement, and a report of how a workflow survives them."""
