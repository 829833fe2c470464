"""The order example: a shop made with makegood, and the remote world that it orders from.

- ``shop.py``      the shop itself: three agents, their actions with their undos, the workflow of an order, which may
  wait for an approval, and the nightly settlement, on a schedule. Start reading here.
- ``remote.py``    how the actions speak to the remote services.
- ``services.py``  the remote services: a process of its own with real books (``books.py``) and faults to order
  (``faults.py``); ``world.py`` starts and stops it.
- ``auditor.py``   reads the services' books and what the shop was told, and finds whatever does not balance.
- ``storefront.py`` the shop's own process: sends what ``customers.py`` order to the submission process, and hears of it.
- ``approver.py``  whoever approves large orders, as a process: it finds what waits, and sends its answers as signals.
- ``private_servers.py`` a broker of the demo's own, if orders are to come through one.
- ``demo.py``      ``makegood demo``: all of it as a wall of processes (``processes.py``, ``tether.py``) of which some are
  killed (``chaos.py``); ``display.py`` and ``report.py`` tell of it in a terminal.
- ``stage.py``     the stage, a page in a browser: ``director.py`` does what its buttons say, ``acts.py`` are eight acts,
  ``visitor.py`` what you answer, ``scene.py`` and ``stage_ladder.py`` what is shown, ``stage_pages.py`` and the folder ``page`` the page itself.
  ``broker_watch.py`` is what waits at the broker.

Only the shop and its customers know makegood. The services and the auditor do not, as the remote world never does.
"""
