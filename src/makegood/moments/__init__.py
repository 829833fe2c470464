"""Moments of the calendar: those of a cron text in a time zone, and those of an interval. Pure arithmetic.

No clock is read here, and nothing is kept between two computations. ``cron`` says what becomes of a time that
does not exist, or exists twice, where clocks change.
"""
