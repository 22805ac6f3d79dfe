"""Stored records: frozen, equal by value."""
