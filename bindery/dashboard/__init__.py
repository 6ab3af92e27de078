"""The dashboard: the answers of the commands as pages in a browser, each also JSON and CSV.

`state` keeps the cluster and plans in memory, `seen` reduces it to what a person may see, `pages`
makes each page from that, and `web` serves it. Nothing is ever written to the cluster.
"""
