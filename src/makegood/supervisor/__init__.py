"""The Supervisor: finds what is late, dead or forgotten, and asks Schedulers to recover it."""
