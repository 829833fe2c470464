"""Power cuts: what the disk may hold afterwards, whether the store is whole in it, and the engine going on."""
