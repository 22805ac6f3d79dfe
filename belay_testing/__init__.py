"""What tests of belay and of workflows stand on: fixtures, test clocks, a real PostgreSQL."""
