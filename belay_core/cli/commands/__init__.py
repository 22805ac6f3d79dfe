"""The commands, one module each; what they need beyond click they import when they run."""
