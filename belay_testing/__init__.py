"""Tools for tests of belay and of workflows: fixtures, test clocks, faults, crashes, a real PostgreSQL."""
