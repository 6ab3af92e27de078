"""A model of the Kubernetes API server, in memory, for histories of simulated failure.

    server = ModelApiServer(now_s, random.Random(seed))
    client = Client(ModelCarrier(server, "scheduler-a"), request_timeout_s=30.0)

`server.handle` carries out one call, atomically; `server.store.log` has every write: who wrote
what, when, and both versions. `tests/e2e/test_apiserver_model.py` holds the model against
kube-apiserver 1.36: the same random calls get the same answers and lead to the same watch lines.

Modelled:

- reading: get, lists with pages as of one version, watches with bookmarks, `410 Gone` after
  `store.compact`, selectors, PartialObjectMetadata, discovery;
- writing: create (with generateName and dry runs), replace, merge patch, JSON patch, strategic
  merge patch of pods and nodes, status subresources, preconditions, finalizers, grace periods,
  propagation policies, `binding`, `eviction` with disruption budgets, `finalize`;
- own kinds: defaults, pruning, validation and CEL rules as in `crds/`;
- admission: priority, default tolerations, protection of volumes, not-ready taints, namespaces;
- steps that a world takes: garbage collection and the end of namespaces (`garbage`).

Not modelled, and refused with `NotModelledError`: server-side apply, deletion of a collection,
directives of strategic merge patches, other options in the query, fields of pods and containers
that the product does not use, JSON patches with `move` or `copy`, evictions of one version, CEL
rules on `oldSelf`, schemas with other keywords than those in `crds/`.

Not modelled, and accepted silently, so a world must not depend on it:

- types of fields of built-in kinds, their unknown fields (beside those of pods), and most of their
  validation; kinds with a bare `Strategy` in `builtinkinds` get no defaults at all;
- managedFields, and with them the versions that a write gets only because its fields change their
  owner;
- ServiceAccounts of pods, quotas, limit ranges, RBAC (see `refuse` and `may`), webhooks, policies;
- how long a call takes. kube-apiserver tries an eviction with another UID for 10 s.
"""
