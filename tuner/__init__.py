"""Find by measurement how many pm2 instances of a Strapi application each host should run."""

from __future__ import annotations

__version__ = "0.1.0"
