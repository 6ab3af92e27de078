"""What the controllers of workloads create from their objects, known without a cluster. Pure.

`expansion` follows the objects down to their pods: `makers` knows the kinds whose pods do not
follow from their row in the table, `rowpods` makes the pods that do.
"""

from bindery.grouper.controllers.expansion import Expansion, expand

__all__ = ["Expansion", "expand"]
