"""The order example: a shop made with makegood, and the remote world that it orders from.

- ``shop.py``      the shop itself: three agents, six actions with their undos, one workflow. Start reading here.
- ``remote.py``    how the actions speak to the remote services.
- ``services.py``  the remote services: a process of its own with real books (``books.py``) and faults to order
  (``faults.py``); ``world.py`` starts and stops it.
- ``auditor.py``   reads the services' books and what the shop was told, and finds whatever does not balance.

Only ``shop.py`` knows makegood. The services and the auditor do not, as the remote world never does.
"""
