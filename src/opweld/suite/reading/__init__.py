"""Accounts of a store: how far it is, as a page, as a table, against another one. All only read."""
