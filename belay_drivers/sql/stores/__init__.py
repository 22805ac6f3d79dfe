"""The stores over one SQL database."""
