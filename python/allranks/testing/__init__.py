"""Tests that run as all ranks, in one process: the pytest plugin (`plugin.py`) and `allranks.test` (`decorator.py`).

Both stand on `runs.py`, which runs one test on its ranks, and `verdicts.py`, which makes one outcome of what the ranks
did. Everything that knows pytest is in the modules that `plugin.py` imports once a test is marked; importing this
package, or the plugin, imports neither torch nor any of them.
"""
