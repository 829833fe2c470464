"""Lease stores, a module each; ``makegood.election.open_leases`` imports only the one that a URL names."""
