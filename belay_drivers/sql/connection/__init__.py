"""Connections, transactions, and the translation of their errors."""
