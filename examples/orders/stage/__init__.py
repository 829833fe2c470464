"""The stage: a page on which the demo's processes are killed, its services spoilt, and the seven acts played.

``director.py`` does what the buttons say, to processes that the demo started and to no others; ``acts.py`` are the seven
acts; ``scene.py`` puts together what the page shows; ``app.py`` serves it, on 127.0.0.1 only. It needs ``makegood[console]``.
"""
