"""The options, marks and report of belay's conformance suite."""

pytest_plugins = ["belay_testing.plugin"]
