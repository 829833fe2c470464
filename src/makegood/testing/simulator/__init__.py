"""The simulator: the real engine on virtual time, with faults drawn from a seed."""
