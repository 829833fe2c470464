"""Power cuts: what the disk may hold afterwards, whether the store in it is whole, and how the engine
continues.
"""
