"""Find by measurement how many pm2 instances of a Strapi application each host should run."""

from __future__ import annotations

import os

# The matrices are small, so that one thread is quickest; more would take CPUs from a host that may be this machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
