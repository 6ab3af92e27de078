"""Dynamic resource allocation: which devices a claim gets, decided purely (KEP-4381 and its kin).

`cel` and `celfunctions` evaluate selectors; `inventory` knows devices, `usage` what is taken of
them; `claims` reads claims, `allocator` searches, `result` writes what it has found. Used by the
scheduler plugin `dra`.
"""
