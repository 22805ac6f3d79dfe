"""The answers of every operation: an answer a caller must plan for is a value (specs, run store 6 and 7)."""
