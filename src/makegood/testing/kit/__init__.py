"""What users of ``makegood.testing`` hold: a world of their own, its services, storms and proofs."""
