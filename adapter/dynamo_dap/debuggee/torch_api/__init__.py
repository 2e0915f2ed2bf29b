"""Forms the boundary to torch: private names, hooks, and typed readers of torch's objects.

    traced         a running trace: frames, VariableTrackers, symbols, sizes, replays
    graphs         FX graphs, and what runs them
    compiles       a compile's events, phases, graph breaks and errors
    lowering       below Dynamo: AOTAutograd, passes of Inductor, its lowering and its kernels
    cache          cache entries, guards, lookups, kernels on disk
    code_objects   generated code: originals, names, memory of frames
    devices        CUDA graphs, buckets of DDP, process groups

Each name is declared in a ``Feature`` (``features``) and probed once, after torch was imported; a missing name turns
that feature off, with a message. Nothing here imports torch before the user's program does: functions look modules up
in ``sys.modules``, or are only called from inside a trace.
"""
