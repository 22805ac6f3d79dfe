"""Accounts payable on belay: a folder of e-invoices, each booked by a durable run. Begin with ``workflow``."""
