"""A `ulp watch` that is running, for tests and the benchmark of what it costs."""

import contextlib
import http.client
import json
import os
import re
import select
import signal
import time

from training import SECONDS, start


class Watched:
    """The process, and requests to it."""

    def __init__(self, *args):
        self.child = start('watch', *args)
        ready, _, _ = select.select([self.child.stdout], [], [], SECONDS)
        self.line = self.child.stdout.readline() if ready else ''
        found = re.fullmatch(r'http://([^/]+):(\d+)(/.*)\n', self.line)
        if not found:
            self.child.kill()
            raise AssertionError((self.line, self.child.communicate()))
        self.port, self.root = int(found[2]), found[3]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate(timeout=SECONDS)

    def ask(self, path, method='GET', headers=None, host='localhost'):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers={'Host': host, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def document(self):
        status, _, text = self.ask(self.root + 'document.json')
        assert status == 200, status
        return json.loads(text)

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.child.pid}/fd'))

    def until(self, what):
        """The document once it is so."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            document = self.document()
            if what(document):
                return document
            time.sleep(0.05)
        raise AssertionError(f'never so: {document}')

    def stop(self, how=signal.SIGINT):
        self.child.send_signal(how)
        out, err = self.child.communicate(timeout=SECONDS)
        return self.child.returncode, out, err
