"""What happened to gangs and queues in the past days, for the dashboard.

`notes.py` sees it in the results of cycles, `record.py` holds it in bounds, and a ConfigMap keeps
it over restarts. Nothing here has an influence on plans.
"""
