"""What is kept: frozen records, equal by value."""
