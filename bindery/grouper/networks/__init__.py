"""Makes HyperNodes from labels of nodes that discovery writes, such as Topograph's or NFD's.

`domains` plans and is pure; `writing` runs beside the grouping while this process leads.
"""
