"""`pytest --allranks`: torch's own test bases run all ranks of a test in one process; test files stay as they are.

torch's `MultiProcessTestCase` and its children spawn a process for each rank of each test, `MultiProcContinuousTest`
for each rank of each class, and `MultiThreadedTestCase` starts threads. Here only what starts the ranks is replaced;
everything else (what a rank does, the pipes, how results are judged, every message) is upstream's code.

    pytest process                zygote                         child, one a test
    --------------                ------                         -----------------
    hooks.py   collects, then -- start ---> zygote.py
    bases.py   setUp() of a test -- request --> fork ---------> child.py: all ranks, by allranks.launch
    process.py one object a rank <----- how each rank ended ------ the ranks' own pipes
               upstream judges   <----- how the child ended --

- A crash, a hang or what a test leaves behind costs that test alone: each has a child of its own.
- The zygote has torch and all installed packages imported, and none of the user's modules: every rank imports its own
  copy, as a spawned process would (`fresh.py`).
- What cannot be right in one process is run the old way and listed with its reason (`ledger.py`).
"""
