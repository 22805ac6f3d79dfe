"""What the SQL drivers share: tables, statements, fences and the stores made of them."""
