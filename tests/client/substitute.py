"""Substitutes for a Python that would have to import torch: a zygote forks one that has imported it (``zygote.py``).

The script, ``python -I -S -E substitute.py SOCKET REAL_PYTHON ARGUMENTS...``, starts in 10 ms: it imports only built-in
modules. It hands over its arguments, its environment and its descriptors, passes on the signals that it gets, and ends
as the forked process ends. If there is no zygote, or the zygote refuses, this process becomes the real interpreter.
"""

import _signal
import _socket
import marshal
import posix
import sys

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
_NUMBER = 8
"""Bytes of a number in an answer. The first number is the process id, the second its exit status."""


def main() -> None:
    """Run as the substitute."""
    address, python, *arguments = sys.argv[1:]
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(address)
        ask(connection, arguments, posix.environ, (0, 1, 2))
        process = receive(connection)
    except OSError:
        process = 0
    if process <= 0:
        posix.execve(python, [python, *arguments], posix.environ)
    _forward_signals_to(process)
    status = receive(connection)
    if posix.WIFSIGNALED(status):
        _die_of(posix.WTERMSIG(status))
    posix._exit(posix.WEXITSTATUS(status))


def ask(
    connection: _socket.socket, arguments: list[str], environment: dict[bytes, bytes], streams: tuple[int, int, int]
) -> None:
    """Request a process with these arguments, variables, and standard streams."""
    mask = posix.umask(0)
    posix.umask(mask)
    request = marshal.dumps((arguments, environment, posix.getcwd(), mask))
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
    connection.sendmsg([len(request).to_bytes(_NUMBER, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    connection.sendall(request)


def receive(connection: _socket.socket) -> int:
    """Return the next number; 0 if the zygote has ended."""
    data = b""
    while len(data) < _NUMBER:
        piece = connection.recv(_NUMBER - len(data))
        if not piece:
            return 0
        data += piece
    return int.from_bytes(data, "big")


def _forward_signals_to(process: int) -> None:
    """Forward signals: the forked process leads its own group, as this process does if a debugger started it."""

    def forward(number: int, _frame: object) -> None:
        try:  # noqa: SIM105  (contextlib takes longer to import than all of this)
            posix.killpg(process, number)
        except ProcessLookupError:
            pass

    for name in _FORWARDED:
        _signal.signal(getattr(_signal, name), forward)


def _die_of(number: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    posix.kill(posix.getpid(), number)


if __name__ == "__main__":
    main()
