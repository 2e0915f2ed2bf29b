"""Runs the user's program for a server: ``PYTHON entry.py``, with ``DYNAMO_DAP_LAUNCH`` set.

A child process runs it with ``--child``. A worker of multiprocessing's fork server runs it under another name, with the
global ``INVITATION``: the file of a debugger's invitation, or the recorded run as JSON.

This file runs as a plain script, so that none of the user's directories is first on ``sys.path`` while the debugger is
imported. If this Python has no ``dynamo_dap`` installed, it uses the package that contains this file.
"""

import importlib.util
import os
import sys

EXIT_STATUS_UNUSABLE_PYTHON = 3


def _import_own_package() -> None:
    """Make ``dynamo_dap`` importable from this file's package, without adding its whole directory to ``sys.path``."""
    folder = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    spec = importlib.util.spec_from_file_location(
        "dynamo_dap", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dynamo_dap"] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Check that this Python can run the agent, then run the program."""
    is_child = sys.argv[1:2] == ["--child"]
    if sys.path and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    if sys.version_info < (3, 10):  # noqa: UP036  (any Python may be given to us)
        if is_child:
            _run_undebugged("it needs Python 3.10 or newer")
        _exit_unusable("needs Python 3.10 or newer, this is " + sys.version.split()[0])
    try:
        _import_own_package()
        _import_bytecode()
        if is_child:
            from dynamo_dap.debuggee.launch.starting.launch import run_child
        else:
            from dynamo_dap.debuggee.launch.starting.launch import launch
    except ImportError as error:
        if is_child:
            _run_undebugged(str(error))
        _exit_unusable(
            "lacks a package that dynamo-dap needs ("
            + str(error)
            + "); run: "
            + sys.executable
            + " -m pip install bytecode debugpy msgspec"
        )
    if is_child:
        run_child(sys.argv[2:])
    else:
        launch()


def _import_bytecode() -> None:
    """Import the package ``bytecode`` before the program's own ``bytecode``, if any; then free the name for that."""
    known = set(sys.modules)
    import dynamo_dap.debuggee.bytecode.instructions
    import dynamo_dap.debuggee.patching.assembling  # noqa: F401  (imports the package, which is all it is for here)

    for name in set(sys.modules) - known:
        if name.partition(".")[0] == "bytecode":
            del sys.modules[name]


def inject(address: str, token: str) -> None:
    """Load the agent into a running program, on the thread of another debugger, and connect it."""
    if "dynamo_dap" not in sys.modules:
        _import_own_package()
    from dynamo_dap.debuggee.launch.starting.attaching import connect

    host, _, port = address.rpartition(":")
    connect((host, int(port)), access_token=token)


def offer_worker(invitation: str) -> None:
    """Request a session for this process, before it gets its work."""
    try:
        if "dynamo_dap" not in sys.modules:
            _import_own_package()
        from dynamo_dap.debuggee.launch.starting.launch import join

        join(invitation)
    except Exception as error:  # noqa: BLE001  (whatever it is, the worker must run)
        _report_undebugged(invitation, str(error))


def _report_undebugged(invitation: str, problem: str) -> None:
    """Report the problem once per session, since all children with this Python have it."""
    if invitation.startswith("{"):
        sys.stderr.write("dynamo-dap: this child process is not recorded: " + problem + "\n")
        return
    try:
        os.close(os.open(invitation + ".reported", os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return
    sys.stderr.write("dynamo-dap: this child process is not debugged: " + problem + "\n")


def _run_undebugged(problem: str) -> None:
    """Run a child process without the debugger if this Python lacks something: the program must not fail for that."""
    _report_undebugged(sys.argv[2], problem)
    command = getattr(sys, "orig_argv", [sys.executable, *sys.argv])
    here = command.index("--child")
    os.execv(sys.executable, [*command[: here - 1], *command[here + 2 :]])


def _exit_unusable(problem: str) -> None:
    sys.stderr.write("dynamo-dap: " + sys.executable + " " + problem + "\n")
    sys.exit(EXIT_STATUS_UNUSABLE_PYTHON)


if __name__ == "__main__":
    main()
elif "INVITATION" in globals():
    offer_worker(globals()["INVITATION"])
