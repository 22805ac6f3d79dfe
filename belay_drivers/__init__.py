"""Drivers: databases that keep runs. Importing one is choosing it."""
