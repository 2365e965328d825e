"""A broker that says what a test tells it to: what other brokers ask of it is kept, and answered by the test's word.

fake = FakeBroker({"CreateTopics": answer})   # answer(version, fields) -> fields of the response, or None: hangs up
fake.port; fake.asked("CreateTopics"); fake.close()
"""

import contextlib
import socket
import struct
import threading

import messages
from brokers import wait_until


class FakeBroker:
    """Listens on a port of 127.0.0.1, or of `port`; answers ApiVersions by itself: all that `answers` has."""

    def __init__(self, answers, port=0):
        self.answers = answers
        self.requests = []  # (name, version, fields), in the order in which they came
        self.connections = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def asked(self, name):
        with self.lock:
            return [fields for asked, _, fields in self.requests if asked == name]

    def await_asked(self, name, count=1, seconds=30):
        return wait_until(
            lambda: self.asked(name) if len(self.asked(name)) >= count else None, seconds, f"{count} times {name}"
        )

    def hang_up(self):
        """Ends every connection; new ones are still taken."""
        with self.lock:
            for one in self.connections:
                with contextlib.suppress(OSError):  # it has ended by itself
                    one.shutdown(socket.SHUT_RDWR)
            self.connections.clear()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                while self._serve_one(connection):
                    pass
            except OSError:
                pass

    @staticmethod
    def _exactly(connection, count):
        data = b""
        while len(data) < count:
            part = connection.recv(count - len(data))
            if not part:
                return None
            data += part
        return data

    def _serve_one(self, connection):
        head = self._exactly(connection, 4)
        frame = self._exactly(connection, struct.unpack(">i", head)[0]) if head else None
        if frame is None:
            return False
        key, version, correlation = struct.unpack(">hhi", frame[:8])
        api = next(one for one in map(messages.message, messages.names()) if one.key == key)
        reader = messages.Reader(frame)
        messages.header("RequestHeader").decode(reader, api.request.header_by_version[version], whole=False)
        fields = api.request.decode(bytes(reader.data[reader.at :]), version)
        if api.name == "ApiVersions":
            answer = {"ApiKeys": [self._row(name) for name in ["ApiVersions", *self.answers]]}
        else:
            with self.lock:
                self.requests.append((api.name, version, fields))
            answer = self.answers[api.name](version, fields)
            if answer is None:
                return False
        body = messages.header("ResponseHeader").encode(
            {"CorrelationId": correlation}, api.response.header_by_version[version]
        ) + api.response.encode(answer, version)
        connection.sendall(struct.pack(">i", len(body)) + body)
        return True

    @staticmethod
    def _row(name):
        api = messages.message(name)
        return {"ApiKey": api.key, "MinVersion": api.request.versions.start, "MaxVersion": api.request.versions.stop - 1}
