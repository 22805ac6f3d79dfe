"""Values: JSON text, codecs, digests, and which text and numbers a database can keep."""
