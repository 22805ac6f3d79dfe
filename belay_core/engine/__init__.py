"""The engine: owns runs, plays their bodies from the records, and lets them go (kernel 12 to 18)."""
