"""Crashes at every call and at every statement, and an account of what a workflow makes of them."""
