"""Programs of other languages: those of the exchange of records, and Kafka's own tools in one JVM."""

import base64
import functools
import subprocess

from messages import REPOSITORY

INTEROP = REPOSITORY / "tests/interop"
BUILD = REPOSITORY / "build"
JVM = ["java", "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def run_program(command, seconds=120):
    """Runs a program of the exchange; it must end with 0 and its one line 'ok: ...'."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.startswith("ok: "), done.stdout
    return done.stdout


class JavaTools:
    """One JVM with Kafka's own tools of one release (java/src/ToolServer.java)."""

    def __init__(self, version):
        self.version = version
        classpath = f"{BUILD}/interop/java:{BUILD}/kafka-{version}/libs/*"
        self.process = subprocess.Popen(
            [*JVM, "-cp", classpath, "ToolServer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tool, *arguments, stdin=b"", status=0):
        """A tool's standard output; it must end with `status` (None: any)."""
        fields = [tool, *map(str, arguments)]
        fields = [base64.b64encode(field.encode()).decode() for field in fields] + [base64.b64encode(stdin).decode()]
        self.process.stdin.write("\t".join(fields) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the JVM ended while it ran {tool} {arguments}"
        code, out, err = answer.rstrip("\n").split("\t")
        out, err = base64.b64decode(out).decode(errors="replace"), base64.b64decode(err).decode(errors="replace")
        assert status is None or int(code) == status, f"{tool} {arguments}: exit status {code}\n{out}\n{err}"
        self.errors = err
        return out


@functools.cache
def java_tools(version):
    """The one JVM of a release. It ends with this process: its standard input is closed then."""
    return JavaTools(version)
