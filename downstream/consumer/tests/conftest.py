"""Belay's fixtures."""

pytest_plugins = ["belay_testing.plugin"]
