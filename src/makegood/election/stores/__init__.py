"""Lease stores, a module each; ``makegood.election.open_leases`` imports the one that a URL names, and none else."""
