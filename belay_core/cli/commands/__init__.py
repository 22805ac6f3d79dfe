"""The commands, one module each; each imports what it needs beyond click when it runs."""
