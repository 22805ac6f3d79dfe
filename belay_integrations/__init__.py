"""Adapters for web frameworks and for code without an event loop; each module needs no more than its framework."""
