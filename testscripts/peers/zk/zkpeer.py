#!/usr/bin/python3
"""Takes locks on ZooKeeper with kazoo's Lock: zkpeer.py ADDR PATH try|take|hold|contend.

The modes, the exit codes and the critical section are those of ZkPeer.java.
"""

import os
import subprocess
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock

BUSY = 75


def contend(lock):
    while not os.path.exists("stop"):
        with lock:
            subprocess.run(["sh", "peersection", "kazoo", "-x"], check=True)


def main(addr, path, mode):
    client = KazooClient(hosts=addr, timeout=2)
    client.start()
    lock = Lock(client, path, "kazoo peer")
    if mode == "contend":
        contend(lock)
        client.stop()
        return
    try:
        lock.acquire(timeout=60 if mode == "take" else 0.1)
    except LockTimeout:
        client.stop()
        sys.exit(BUSY)
    if mode == "hold":
        print("held", flush=True)
        sys.stdin.read()
    lock.release()
    client.stop()


main(*sys.argv[1:])
