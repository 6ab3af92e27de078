"""The scheduler: plans gangs in memory, in transactions, and commits each as a BindRequest.

The way of one gang through this package, from the watch to the API:

    cache/     watches become columns over nodes and queues, and jobs with their pods (model/)
    engine.py  one cycle: opens a session, runs the actions, hands out what was committed
    planning/  the session borrows the columns for one cycle; placement finds nodes for equal pods
               together; a Statement is the transaction over all ledgers/
    actions/   which jobs get what, in which order; reclaim, preempt and consolidation use solver/
    plugins/   the rules that can be switched; each resource has a package with plugin and ledger
    commit/    committed Statements become BindRequests and evictions, and are written
    status/    conditions of gangs, pods and queues are decided and written
    loop.py    waits for changes, runs a cycle, hands over what is to be written
    process.py starts all of it

fairness/ and usage/ compute what queues deserve. insight/ answers explain and whatif. Imports
point from process.py towards model/; contracts in pyproject.toml hold the order. Decisions are
pure: clock and API are passed in. I/O is in process.py, loop.py, cache/feed.py, and the writers of
commit/, status/ and usage/.
"""
