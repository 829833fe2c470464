"""Storms over the real engine: a shop of every shape, its surroundings, customers and an operator who act at
random.
"""
