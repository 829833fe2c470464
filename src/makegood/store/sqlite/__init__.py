"""The store on one SQLite file: ``SQLiteStore``.

A file on a local disk serves several processes of one machine. Each store object has one thread that writes and one
that reads, so that reading never waits for the disk. Everything that was asked for while a commit ran goes
into the next one. What each part does: ``connection`` opens the file and sets what durability needs, ``threads`` runs
transactions, ``transaction`` is what they get, ``bell`` wakes other processes, ``store`` is the whole.
"""

from makegood.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
