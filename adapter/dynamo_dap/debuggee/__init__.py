"""What runs inside the debugged program.

Packages by feature. Each imports only packages that stand above it in this list (a structure test holds it)::

    bytecode     facts about code objects
    torch_api    the boundary to torch: probed names, hooks, typed readers
    triton       Triton's interpreter: launches, pointers, accesses
    values       any value as bounded DAP variables
    agent        the program's end of DAP: threads, pauses, breakpoints, steps
    generated    run-time mode: the bytecode that Dynamo generated
    recording    facts about each compile, for ``dynamo_dap.records``
    trace        compile-time mode: stops, stepping, scopes, evaluation
    inductor     stages below Dynamo: lowering stops, kernels, costs
    replay       cached calls: saved traces, graph calls
    numerics     NaN, calls that differ from eager, gradients and backward stops
    history      snapshots of a trace, time travel, what-if
    kernel_races races between the programs of a Triton kernel
    eager        debugpy in the same process
    composition  puts the features together into the engine for compile-time mode
    patching     other instructions for generated code, at the user's request
    saved_calls  saves calls of compiled functions, and repeats them
    launch       starts the agent and runs the user's program
"""
