"""Documents as the admin tells them, of an instance with some life in it."""

from __future__ import annotations

from typing import Any, Final

START_S: Final = 1_795_302_000
MIB: Final = 1 << 20


def documents() -> dict[str, Any]:
    """By path; each call gives new ones, which a test may change."""
    return {
        "/status": status(),
        "/history": history(),
        "/topics": topics("orders.eu", "orders.us", "trades"),
        "/clients": clients("pricer", "blotter"),
        "/subscriptions": subscriptions(),
        "/journal": journal(),
        "/actions": actions(),
        "/queues": queues("work", "audit"),
        "/exchanges": exchanges(),
        "/replication": replication(),
        "/transactions": transactions(),
        "/queues/work/explain": explained("it has no consumer", "1,234 messages are ready"),
    }


def status() -> dict[str, Any]:
    processes = ("supervisor", "journal", "ingest", "delivery", "admin")
    return {
        "instance": "10b714bc24174273",
        "name": "emea-1",
        "group": "default",
        "state": "ready",
        "url": "tcp://127.0.0.1:9101",
        "version": "0.1.0",
        "started": "2026-11-21T23:01:56+00:00",
        "data_dir": "/var/lib/zbroker",
        "alarms": [],
        "endpoints": {},
        "clients": 2,
        "subscriptions": 2,
        "queues": {"count": 2, "depth": 4_321},
        "rates": {
            "messages_in_s": 1234.5,
            "messages_out_s": 2469.0,
            "bytes_in_s": 3.0 * MIB,
            "queue_acked_s": 76.0,
        },
        "security": {"on": True, "access_version": 3, "problem": ""},
        "journal": {
            "first_position": 1,
            "written": 1_234_567,
            "persisted": 1_234_560,
            "segments": 4,
            "bytes": 200 * MIB,
            "durability": "disk",
            "free_bytes": 71_346_343_936,
            "disk_used_percent": 28,
            "messages": 1_234_000,
            "publishers": 12,
            "duplicates": 34,
            "conflicts": 0,
            "sync_ms": 0.618,
        },
        "ingest": {},
        "delivery": {},
        "processes": [_process(process, i) for i, process in enumerate(processes)],
    }


def _process(process: str, i: int) -> dict[str, Any]:
    return {
        "room": process,
        "pid": 26_089 + i,
        "state": "ready",
        "restarts": int(process == "delivery"),
        "uptime_s": 93_600,
        "progress": "",
    }


def alarm() -> dict[str, Any]:
    return {
        "code": "disk_80",
        "since": "20261121T230156Z",
        "what": "/var/lib/zbroker is 83 % full (12 GiB free)",
        "means": "nothing yet; when the journal's disk is full, publishers are refused",
        "next": "see [retention] in the config, or free space",
    }


def history(samples: int = 361) -> dict[str, Any]:
    """An hour in steps of ten seconds, with a hole of a minute."""
    course = [None if 100 <= i < 106 else (i * 37) % 900 for i in range(samples)]
    rates = ("messages_in_s", "messages_out_s", "bytes_s", "bytes_out_s")
    queues = ("queue_depth", "queue_in_s", "queue_delivered_s", "queue_acked_s")
    names = (*rates, *queues, "clients", "subscriptions", "lag_max", "fsync_ms")
    return {
        "step_s": 10,
        "times": [START_S + 10 * i for i in range(samples)],
        "series": {name: list(course) for name in names},
    }


def topics(*names: str) -> dict[str, Any]:
    rows = [
        {
            "topic": name,
            "recorded": True,
            "messages": 400_000 - 1_000 * i,
            "bytes": (50 - i) * MIB,
            "first_time": "20261120T080000Z",
            "last_time": "20261121T230156.535897Z",
            "last_position": 1_234_000 - i,
            "subscriptions": i,
        }
        for i, name in enumerate(names)
    ]
    return {"topics": rows, "left_out": 0, "complete": True}


def clients(*names: str) -> dict[str, Any]:
    rows = [
        {
            "door": "ingest",
            "room": "ingest",
            "client": name,
            "principal": name,
            "instance": "",
            "address": f"10.1.2.3:{40_000 + i}",
            "connected_s": 3_600 + i,
            "session": i,
            "publisher": 77,
            "acked": 500_000,
            "window_bytes": 16 * MIB,
            "messages": 500_000,
            "subscriptions": 0,
            "heartbeat_s": 5.0,
        }
        for i, name in enumerate(names)
    ]
    return {"clients": rows, "silent": [], "left_out": 0}


def subscription(client: str, topic: str, state: str, lag: int) -> dict[str, Any]:
    return {
        "worker": "delivery",
        "client": client,
        "sid": f"{client}-{topic}",
        "topic": topic,
        "regex": False,
        "filter": "",
        "options": {},
        "state": state,
        "due_ms": None,
        "starts": None,
        "position": 1_234_567 - lag,
        "lag": lag,
        "lag_s": lag / 1_000,
        "credit": MIB,
        "sent_messages": 1_000_000,
        "sent_bytes": 99 * MIB,
        "since": "20261121T220156Z",
    }


def subscriptions() -> dict[str, Any]:
    slow = subscription("blotter", "orders.eu", "no credit", 56_789)
    slow["filter"] = "/region = 'EU' AND /quantity > 100"
    live = subscription("risk", "trades", "caught up", 0)
    return {"persisted": 1_234_560, "silent": [], "left_out": 0, "subscriptions": [slow, live]}


def link(link_name: str, direction: str, state: str, **more: Any) -> dict[str, Any]:
    goes = direction == "out"
    return {
        "name": link_name,
        "direction": direction,
        "state": state,
        "instance": "10b714bc24174274",
        "to": ["tcp://10.0.0.2:9104"] if goes else [],
        "mode": "sync" if goes else "",
        "paused": False,
        "downgraded": False,
        "by_hand": False,
        "mark": 1_234_000 if goes else None,
        "lag": 560 if goes else None,
        "on_the_way_bytes": 3 * MIB if goes else None,
        "log_bytes": 64 * MIB if goes else None,
        "stopped": {},
        "problem": "",
    } | more


def replication(*rows: dict[str, Any]) -> dict[str, Any]:
    """Links; none by default, as of most instances."""
    return {
        "replicates": bool(rows),
        "persisted": 1_234_560,
        "needed": 1 if rows else None,
        "through": None,
        "links": list(rows),
        "origins": [],
    }


def queue(queue_name: str, depth: int) -> dict[str, Any]:
    return {
        "name": queue_name,
        "kind": "work",
        "topic": "orders.*",
        "regex": True,
        "source": "config",
        "life": 1,
        "created": 1,
        "state": "running",
        "depth": depth,
        "ready": depth,
        "leased": 0,
        "delayed": 0,
        "going": 0,
        "consumers": 0,
        "first": 5,
        "last": 9,
        "oldest": "20261121T220156Z",
        "oldest_s": 5_400.0,
        "behind": 0,
        "barrier": None,
        "holding": 5,
        "bytes": 3 * MIB,
        "idle_s": None,
        "elsewhere": 0,
        "elsewhere_first": None,
        "acts_for": [],
        "elsewhere_s": None,
        "memory_bytes": 4_096,
        "entered": 2_000,
        "delivered": 800,
        "redelivered": 3,
        "acked": 760,
        "failed": 4,
        "dead": 6,
        "expired": 0,
        "rates": {"entered_s": 12.5, "delivered_s": 2.5, "acked_s": 76.0},
    }


def queues(*names: str) -> dict[str, Any]:
    rows = [queue(name, 1_234 - i) for i, name in enumerate(names)]
    return {"persisted": 1_234_560, "queues": rows}


def exchange(exchange_name: str, bindings: int, **more: Any) -> dict[str, Any]:
    return {
        "name": exchange_name,
        "kind": "topic",
        "alternate": "",
        "auto_delete": False,
        "internal": False,
        "predeclared": False,
        "bindings": bindings,
    } | more


def exchanges(*rows: dict[str, Any]) -> dict[str, Any]:
    """Those that are always there, and more; none by default, as of most instances."""
    return {"exchanges": [exchange("amq.topic", 0, predeclared=True), *rows]}


def transaction(xid: str, **more: Any) -> dict[str, Any]:
    return {
        "principal": "shop",
        "xid": xid,
        "state": "prepared",
        "session": "billing",
        "instance": "10b714bc24174273",
        "here": True,
        "messages": 2,
        "locked": 1_234,
        "queues": ["orders", "bills"],
        "prepared": "20261121T230156Z",
        "age_s": 5_400.0,
    } | more


def transactions(*rows: dict[str, Any], left_out: int = 0) -> dict[str, Any]:
    return {"left_out": left_out, "transactions": list(rows)}


def binding(queue_name: str, key: str, **more: Any) -> dict[str, Any]:
    return {
        "exchange": "events",
        "queue": queue_name,
        "key": key,
        "arguments": {},
        "instance": "10b714bc24174273",
        "here": True,
    } | more


def bindings(*rows: dict[str, Any], left_out: int = 0) -> dict[str, Any]:
    return {"left_out": left_out, "bindings": list(rows)}


def explained(*lines: str) -> dict[str, Any]:
    return {"queue": "work", "state": "waiting", "lines": list(lines)}


def journal() -> dict[str, Any]:
    return {
        "bytes": 200 * MIB,
        "free_bytes": 71_346_343_936,
        "segments": [
            _segment(1, "archive", packed=True),
            _segment(2, "journal", packed=True),
            _segment(3, "journal"),
            _segment(4, "journal", is_open=True),
        ],
    }


def _segment(
    serial: int, place: str, *, packed: bool = False, is_open: bool = False
) -> dict[str, Any]:
    return {
        "serial": serial,
        "place": place,
        "packed": packed,
        "first": (serial - 1) * 300_000 + 1,
        "end": None if is_open else serial * 300_000 + 1,
        "first_time": None if is_open else f"20261121T2{serial - 1}0000Z",
        "last_time": None if is_open else f"20261121T2{serial}0000Z",
        "bytes": (8 if packed else 64) * MIB,
        "size": 64 * MIB,
        "open": is_open,
    }


def action(number: int, result: str, reason: str = "") -> dict[str, Any]:
    return {
        "id": number,
        "time": "20261121T220000Z",
        "action": "compress",
        "by": "policy",
        "why": "older than compress_after",
        "serials": [number],
        "bytes": 64 * MIB,
        "result": result,
        "reason": reason,
        "took_s": 1.5,
        "progress": {"done": 16 * MIB, "total": 64 * MIB},
    }


def actions() -> dict[str, Any]:
    running = action(3, "running")
    failed = action(2, "failed", "the disk is full")
    return {"running": running, "actions": [running, failed, action(1, "done")]}
