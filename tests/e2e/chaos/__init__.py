"""An attack on a whole installation: churn, kills, stops and cut connections, with recounts.

`make chaos` runs it for an hour, `test_chaos.py` for a minute. `attack` directs; `ground` is
the cluster, `churn` submits and deletes work, `blows` hits the processes, `recount` recounts nodes,
GPUs and queues at each binding, `rest` looks for leaks and wrong conditions once all is quiet.
"""
