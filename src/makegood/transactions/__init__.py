"""Transactions that somebody else began and will end: those of the caller of ``submit(..., connection=...)``.

What is written into one is written as a plain ``async def`` that asks a ``Caller`` (``caller.py``); whether the driver
behind it blocks or is awaited, it is the same code. The drivers and libraries are told apart, without importing any of
them, in ``recognise.py``.
"""

from makegood.transactions.caller import Caller, Work, at_once
from makegood.transactions.recognise import recognise
from makegood.transactions.transaction import Transaction

__all__ = ["Caller", "Transaction", "Work", "at_once", "recognise"]
