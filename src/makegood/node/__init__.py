"""A Node: one process that runs some of the roles on one store."""
