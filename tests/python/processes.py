"""Processes that start TensorFlow once and run many pieces of code for tests.

Starting takes seconds, longer than most of the code they run.
"""

import importlib
import json
import multiprocessing
import os
import subprocess
import sys

# Answers are written to a separate file, because the code may print. The
# process skips TensorFlow's cleanup, which takes long.
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
os._exit(0)
"""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["lodestar"])


def environment():
    """Returns an environment in which Python finds this process's modules."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


class Interpreter:
    """A Python process that finds the modules of this process.

    Args:
        *options: Options of the interpreter.
        start: Code that runs first.
        **popen: Options of subprocess.Popen.
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
        """Runs code as a program with its own names; raises if it raises."""
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
        """Kills the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def without_lodestar(**popen):
    """Returns an Interpreter that cannot import the package."""
    blocked = "import sys; sys.modules['lodestar'] = None\n"
    return Interpreter("-E", start=blocked, **popen)


class Fork:
    """A process that calls a function before any other use of TensorFlow.

    Args:
        function: A function of a module that can be imported by name.
        *arguments: Its arguments.
        **options: Its named arguments.

    Attributes:
        stdout: Its output, as a text file.
    """

    def __init__(self, function, *arguments, **options):
        reader, writer = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(
            target=_call, args=(writer, function, arguments, options)
        )
        self._process.start()
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()))
        reader.close()

    def wait(self):
        """Returns the exit code; minus the number of the signal that killed it."""
        self._process.join()
        return self._process.exitcode

    def read(self):
        """Returns all output; raises if the exit code is not 0."""
        text = self.stdout.read()
        assert self.wait() == 0
        return text

    def kill(self):
        """Kills the process."""
        self._process.kill()
        self._process.join()
        self.stdout.close()


def run_program(module, name, *arguments, **variables):
    """Calls a function of a module that may start a cluster when it is imported.

    `variables` are set in the environment first.
    """
    os.environ |= variables
    getattr(importlib.import_module(module), name)(*arguments)


def _call(stdout, function, arguments, options):
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    function(*arguments, **options)
