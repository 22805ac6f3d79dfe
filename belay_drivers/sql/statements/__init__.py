"""Statements and the rows they read and write."""
