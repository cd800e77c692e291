#!/usr/bin/python3
"""Takes locks on Redis with redis-py's Lock: peer.py ADDR KEY try|hold|contend.

The modes, the exit codes and the critical section are those of main.go.
"""

import fcntl
import os
import sys
import time

import redis
from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

KIND = "redis-py"
BUSY, LOST = 75, 76


def note(file, text):
    with open(file, "a") as f:
        f.write(text)


def section():
    with open("guard", "a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("faults", "overlap: %s\n" % KIND)
        time.sleep(0.005)
        note(KIND, "x\n")


def contend(lock):
    while not os.path.exists("stop"):
        if lock.acquire(blocking_timeout=10):
            section()
            lock.release()
        time.sleep(0.1)


def main(addr, key, mode):
    host, port = addr.rsplit(":", 1)
    lock = Lock(redis.Redis(host, int(port)), key, timeout=10, sleep=0.1)
    if mode == "contend":
        return contend(lock)
    if not lock.acquire(blocking=False):
        sys.exit(BUSY)
    if mode == "hold":
        print("held", flush=True)
        sys.stdin.read()
    try:
        lock.release()
    except LockNotOwnedError:
        sys.exit(LOST)


main(*sys.argv[1:])
