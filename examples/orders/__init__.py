"""The order example: a shop made with makegood, and the remote world that it orders from.

- ``shop.py``      the shop itself: three agents, six actions with their undos, one workflow. Start reading here.
- ``remote.py``    how the actions speak to the remote services.
- ``services.py``  the remote services: a process of its own with real books (``books.py``) and faults to order
  (``faults.py``); ``world.py`` starts and stops it.
- ``auditor.py``   reads the services' books and what the shop was told, and finds whatever does not balance.
- ``demo.py``      ``makegood demo``: the shop at work as a wall of processes (``processes.py``, ``tether.py``) of which
  some are killed (``chaos.py``) while ``customers.py`` place orders; ``display.py`` and ``report.py`` tell of it.

Only the shop and its customers know makegood. The services and the auditor do not, as the remote world never does.
"""
