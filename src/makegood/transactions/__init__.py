"""The caller's transactions, which the caller of ``submit(..., connection=...)`` begins and ends.

Code that writes into one is a plain ``async def`` that uses a ``Caller`` (``caller.py``). The code is the
same whether the driver blocks or is awaited. ``recognise.py`` distinguishes drivers and libraries without
importing any of them.
"""

from makegood.transactions.caller import Caller, StoreTransaction, Work, at_once
from makegood.transactions.recognise import recognise

__all__ = ["Caller", "StoreTransaction", "Work", "at_once", "recognise"]
