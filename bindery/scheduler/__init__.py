"""The scheduler: plans gangs in memory, in transactions, and commits each as a BindRequest.

The way of one gang through this package:

    cache/      watches become columns over nodes and queues, and jobs with their pods
    engine.py   one cycle: opens a session, runs the actions, hands out what was committed
    session.py  borrows the columns for one cycle; placement.py finds nodes for equal pods together
    actions/    which jobs get what, in which order; they ask plugins/ and write into a Statement
    statement.py  the transaction; every operation enters all ledgers/ or none
    commit.py   committed Statements become BindRequests
    process.py  the only part with I/O: watches in, BindRequests and conditions out

Everything but process.py and the modules beside it that say so is pure: clock and API are passed
in.
"""
