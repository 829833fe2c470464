"""makegood's own proofs: storms by the thousand, power cuts, election worlds, replicas. Not in the wheel."""
