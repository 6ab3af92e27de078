"""The real clock and the real chance; `client` gives them to each client that connects.

Only a client of a real API server has them: `tests/house` holds all other modules to arguments.
"""

import time
from random import SystemRandom
from typing import Final

from bindery.kube.environment import Environment

# SystemRandom: the state of another generator could be computed from the names of events, which
# tenants read, and with it the next names. It also differs in processes that start together.
REAL: Final = Environment(time.time, SystemRandom())
