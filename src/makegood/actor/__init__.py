"""What every actor shares: its reaction to an unexpected exception. Any room that runs a role may import
it.
"""
