"""SQL statements, and the conversion of rows."""
