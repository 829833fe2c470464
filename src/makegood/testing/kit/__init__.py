"""What users of ``makegood.testing`` work with: the simulated world, its services, storms and proofs."""
