"""Owners as processes: who this one is, and whether another one is gone."""
