"""What may come in: pure checks made before anything is sent to a database (specs, run store 2)."""
