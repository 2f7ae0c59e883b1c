"""Python processes of tests: programs, and what runs one after another.

TensorFlow takes seconds to start, more than most of what is run there.
"""

import contextlib
import json
import os
import subprocess
import sys

# Answers have a file of their own: the code may print.
_LOOP = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    code, arguments = json.loads(line)
    sys.argv = ["-c", *arguments]
    try:
        exec(code, {"__name__": "__main__"})
        failure = ""
    except BaseException:
        failure = traceback.format_exc()
    print(json.dumps(failure), file=answers, flush=True)
"""


def environment():
    """In which a Python process sees the modules which this one sees."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@contextlib.contextmanager
def python_programs():
    """Gives what starts Python programs, which end with the block.

    A program is code and arguments; its standard output is a pipe.
    """
    with contextlib.ExitStack() as stack:

        def start(code, *arguments):
            process = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, arguments)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


class Interpreter:
    """A Python process that sees the modules which this one sees.

    Args:
        *options: of the interpreter.
        start: code that runs first.
        **popen: as those of subprocess.Popen.
    """

    def __init__(self, *options, start="", **popen):
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", start + _LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
            **popen,
        )

    def run(self, code, *arguments):
        """Runs code as a program with names of its own; raises where it does."""
        line = json.dumps([code, list(map(str, arguments))])
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process ended with {self._process.wait()}"
        failure = json.loads(answer)
        assert not failure, failure

    def close(self):
        """Lets the process end."""
        self._process.communicate()

    def kill(self):
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
