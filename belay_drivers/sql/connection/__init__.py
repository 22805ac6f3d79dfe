"""Connections, transactions and what a database answers when they fail."""
