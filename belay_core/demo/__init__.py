"""The packaged demo: accounts payable for a folder of UBL 2.1 e-invoices."""
