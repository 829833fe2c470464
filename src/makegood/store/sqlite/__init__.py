"""The store on one SQLite file: ``SQLiteStore``.

A file on a local disk serves several processes of one machine. Each store object has one thread that writes
and one that reads, so that reads never wait for the disk. Everything that was asked for during a commit goes
into the next one. The parts: ``connection`` opens the file and applies the settings that durability needs,
``store_threads`` runs transactions, ``transaction`` is what those work with, ``wake_socket`` wakes other
processes, ``store`` is the whole.
"""

from makegood.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
