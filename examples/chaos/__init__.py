"""Chaos: the order example under every fault that this machine can make, with real processes, for as long as one likes.

``python -m examples.chaos --seconds 60 --store postgres`` (or ``make chaos SECONDS=60 STORE=postgres``). Several customers
place orders all the time; every few hundred milliseconds something is killed, stopped, cut, locked, made slow or told to lie,
or an operator acts. Then everything is healed, must come to rest within a bounded time, and is checked: the services' own
books against what the shop says, and whether each kind of fault happened at all.

- ``kinds.py``      the kinds of faults, and the plan of a run, drawn from its seed
- ``strikes.py``    carries the plan out: on processes, on the ``network.py``, on the remote services, on the store
- ``stores.py``     the store under fire: a SQLite file (``locker.py``) or a PostgreSQL server (``server.py``)
- ``customers.py``  who orders what (``orders.py``); ``operators.py`` who cancels, undoes, resubmits and settles
- ``broker.py``     with ``--broker``: a broker through which ``publishers.py`` order; ``broker_inbox.py`` makes tasks of that, and
                    ``broker_checks.py`` says what is wrong with them and their notices
- ``ends.py``       how every order ended, read once all is at rest; ``checker.py`` what is wrong with that,
  ``wait_checks.py`` and ``lane_checks.py`` with waits and lanes
- ``play.py``       one run from the first process to the report; ``report.py``, ``screen.py`` tell of it

It needs a checkout: it is no part of the wheel.
"""
