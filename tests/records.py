"""Records for tests, sound in every field: a test names only those that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.model import BYTES_PER_MIB, Deployment, HostCapacity, Trial, Usage

# How pm2 is to treat an application, as in an ecosystem file; times in milliseconds.
PM2_SETTINGS: Mapping[str, object] = {
    "exec_mode": "cluster",
    "wait_ready": True,
    "listen_timeout": 20000,
    "kill_timeout": 5000,
    "min_uptime": 2000,
    "max_restarts": 3,
    "merge_logs": True,
}
GIB = 1024 * BYTES_PER_MIB


def capacity(cpu_budget: float = 2.0, **more: object) -> HostCapacity:
    fields: dict[str, Any] = {
        "cpus_online": 64,
        "cpus_affinity": 64,
        "cpu_quota": cpu_budget,
        "cpu_budget": cpu_budget,
        "cpu_limited_by": "quota",
        "memory_total_bytes": 256 * GIB,
        "memory_limit_bytes": None,
        "memory_available_bytes": 200 * GIB,
    }
    fields.update(more)
    return HostCapacity(**fields)


def deployment(**more: object) -> Deployment:
    fields: dict[str, Any] = {
        "app_name": "strapi",
        "instances": 1,
        "unwell": 0,
        "url": "http://127.0.0.1:1337",
        "release": "8c42c2fda145",
        "database_client": "postgres",
        "sqlite_multi_process": False,
        "database_pool_max": 10,
        "database_connections": 0,
        "worker_peak_bytes": None,
    }
    fields.update(more)
    return Deployment(**fields)


def usage(**more: object) -> Usage:
    fields: dict[str, Any] = {
        "application": 1.0,
        "workers": (1.0,),
        "daemon": 0.05,
        "database": None,
        "generator": 0.05,
        "generator_here": 0.05,
        "foreign": 0.02,
        "steal": 0.0,
        "throttled_share": 0.0,
        "slowest_spin_s": 0.05,
    }
    fields.update(more)
    return Usage(**fields)


def trial(instances: int, round_number: int, throughput_rps: float, **more: object) -> Trial:
    fields: dict[str, Any] = {
        "number": 1,
        "booted": 0,
        "settled": True,
        "warmup_cut_s": 2.0,
        "requests": 4000,
        "errors": 0,
        "errors_by_kind": {},
        "latency_ms": {"p50": 100.0, "p99": 250.0},
        "rss_bytes": 300 * BYTES_PER_MIB * instances,
        "restarts": 0,
        "usage": usage(),
        "limited_by": "application CPU",
        "disturbances": (),
        "attempt": 1,
        "wall_s": 15.0,
    }
    fields.update(more)
    return Trial(instances=instances, round=round_number, throughput_rps=throughput_rps, **fields)
