"""What the Python members share: options, telling (a line a write), and the word to close."""

import json
import os
import sys
import threading

OPTIONS = json.loads(sys.argv[1])
closing = threading.Event()


def tell(kind, **fields):
    """One write a line: lines of several members then stay whole in the pipe they share."""
    line = json.dumps({"m": OPTIONS["member"], "ev": kind, **fields}, separators=(",", ":")) + "\n"
    os.write(1, line.encode())


def _await_word():
    sys.stdin.readline()  # "close", or the end of the input: whoever started us is gone
    closing.set()


threading.Thread(target=_await_word, daemon=True).start()


class Fenced(BaseException):
    """Another process has this member's group.instance.id."""


class Handled:
    """Records handled and not committed yet."""

    def __init__(self):
        self.next = {}  # (topic, partition) -> offset to commit

    def record(self, topic, partition, offset, value):
        tell("record", t=topic, p=partition, o=offset, v=value.decode())
        self.next[topic, partition] = offset + 1

    def commit(self, commit):
        """`commit` takes {(topic, partition): offset} and raises when the broker refuses. What is refused stays."""
        try:
            if self.next:
                commit(self.next)
        except Exception as error:
            self.refused(error)
        else:
            self.committed()

    def refused(self, error):
        tell("refused", why=f"{type(error).__name__}: {error}")

    def committed(self):
        if self.next:
            tell("committed", offsets=[[*where, offset] for where, offset in self.next.items()])
        self.next = {}

    def forget(self, partitions):
        for where in partitions:
            self.next.pop(tuple(where), None)
