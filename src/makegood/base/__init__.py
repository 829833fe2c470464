"""Clocks, durations, ids, texts, threads, files and addresses: the floor under every other room.

Any room may import any module here. This room imports only ``makegood.errors``, and knows nothing of tasks.
"""
