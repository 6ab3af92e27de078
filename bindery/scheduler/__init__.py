"""The scheduler: plans gangs in memory, in transactions, and commits each as a BindRequest.

The path of a gang through this package, from the watch to the API:

    cache/     applies watch events to columns over nodes and queues, and to jobs (model/)
    engine.py  runs one cycle: opens a session, runs the actions, yields a draft a Statement
    planning/  the session borrows the columns for one cycle; placement finds nodes for equal pods
               together; a Statement is the transaction over all ledgers/
    placing/   which pods of a job come next and in which domains; places them on idle room
    actions/   place jobs in order; reclaim, preempt and consolidation use solver/
    plugins/   rules that the configuration switches; a resource has a package with its ledger
    commit/    turns committed Statements into BindRequests and evictions, and writes them
    status/    computes and writes the conditions of gangs, pods and queues
    world.py   is the cluster in memory, for insight/, scenarios and simulations
    loop.py    waits for changes, runs cycles, passes their results to the writers
    process.py starts all of it

fairness/ and usage/ compute fair shares. insight/ answers explain and whatif. Imports point from
process.py towards model/; contracts in pyproject.toml check the order. Decisions are
pure: clock and API are passed in. I/O is in process.py, loop.py, cache/feed.py, and the writers of
commit/, status/ and usage/.
"""
