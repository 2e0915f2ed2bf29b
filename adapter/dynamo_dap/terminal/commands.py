"""What can be typed at the prompt: the table of commands, the commands, and the completion of a line.

Commands run on the prompt's thread, for the selected frame of a stopped thread, print through the screen, and raise
``UsageError`` for wrong input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.contract import (
    GO_TO,
    KEEP,
    LISTING_FORMS,
    ORIGINS,
    RUN_BACK,
    TIMELINE,
    WHAT_IF,
    KeepArguments,
    TimelineBody,
    WhatIfBody,
)
from dynamo_dap.protocol.messages import decode
from dynamo_dap.protocol.types import (
    GotoArguments,
    GotoTargetsArguments,
    GotoTargetsResponseBody,
    Scope,
    SetExpressionArguments,
    SetExpressionResponseBody,
    Source,
)
from dynamo_dap.terminal.breakpoints import Quit, UsageError, parse_place
from dynamo_dap.terminal.debugger import Debugger, State

Run = Callable[[Debugger, str], None]
Complete = Callable[[Debugger, str], Iterable[tuple[str, int]]]
"""Completions of an argument: what to insert, and how many characters before the cursor it replaces."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    names: tuple[str, ...]
    """The full name first, then short forms."""
    argument: str
    meaning: str
    run: Run
    complete: Complete | None


commands: list[Command] = []


def command(names: str, argument: str = "", complete: Complete | None = None) -> Callable[[Run], Run]:
    """Register the decorated function; the first line of its docstring is what ``help`` says."""

    def register(run: Run) -> Run:
        meaning = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        commands.append(Command(tuple(names.split()), argument, meaning, run, complete))
        return run

    return register


def execute(debugger: Debugger, line: str) -> None:
    """Run one command line; an empty one does nothing, one that begins with ``!`` is evaluated.

    Raises:
        UsageError: there is no such command, or it makes no sense now.
    """
    line = line.strip()
    if line.startswith("!"):
        line = f"print {line[1:]}"
    if line:
        name, _, argument = line.partition(" ")
        find(name).run(debugger, argument.strip())


def find(name: str) -> Command:
    """The command called ``name``, or the only one that begins so.

    Raises:
        UsageError: there is none, or there are several.
    """
    exact = [one for one in commands if name in one.names]
    begun = exact or [one for one in commands if one.names[0].startswith(name)]
    if not begun:
        raise UsageError(f"there is no command {name!r}: 'help' lists them, 'print {name}' evaluates an expression")
    if len(begun) > 1:
        raise UsageError(f"{name!r} may be {' or '.join(one.names[0] for one in begun)}")
    return begun[0]


def number(text: str) -> int:
    """Read a number that is not negative.

    Raises:
        UsageError: it is none.
    """
    if not text.isdigit():
        raise UsageError(f"{text!r} is not a number")
    return int(text)


def _count(text: str) -> int:
    count = number(text or "1")
    if not count:
        raise UsageError("give how many steps, from 1 on")
    return count


# -- letting the program go on ---------------------------------------------------------------------------------


@command("continue c run r")
def go_on(debugger: Debugger, argument: str) -> None:
    """Run to the next stop."""
    debugger.resume("continue")


@command("next n", "[COUNT]")
def step_over(debugger: Debugger, argument: str) -> None:
    """Step to the next line of this function."""
    debugger.resume("next", count=_count(argument))


@command("step s", "[COUNT]")
def step_in(debugger: Debugger, argument: str) -> None:
    """Step to the next line, into calls."""
    debugger.resume("stepIn", count=_count(argument))


@command("out o finish")
def step_out(debugger: Debugger, argument: str) -> None:
    """Run until this function returns."""
    debugger.resume("stepOut")


@command("nexti ni", "[COUNT]")
def step_over_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, over calls."""
    debugger.resume("next", "instruction", count=_count(argument))


@command("stepi si", "[COUNT]")
def step_in_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, into calls."""
    debugger.resume("stepIn", "instruction", count=_count(argument))


@command("back rnext rn", "[COUNT]")
def step_back(debugger: Debugger, argument: str) -> None:
    """Step back to the line before, in a trace: over what it called."""
    debugger.resume("stepBack", count=_count(argument))


@command("rcontinue rc")
def reverse(debugger: Debugger, argument: str) -> None:
    """Go back to the breakpoint before, in a trace."""
    debugger.resume("reverseContinue")


@command("origin", "NAME [bound|mutated|guarded|nan|made]")
def origin(debugger: Debugger, argument: str) -> None:
    """Go back in a trace to where a variable was bound, changed in place, guarded, or became NaN."""
    name, _, what = argument.partition(" ")
    what = what.strip() or ORIGINS[0]
    if not name or what not in ORIGINS:
        raise UsageError(f"origin NAME [{'|'.join(ORIGINS)}]")
    debugger.travel(RUN_BACK, {"frameId": debugger.frame().id, "name": name, "to": what})


@command("timeline", "[MOMENT]")
def timeline(debugger: Debugger, argument: str) -> None:
    """Show the statements that the trace has visited around this one, or go to one of them."""
    thread_id = debugger.stopped_thread()
    if argument:
        if not argument.isdigit():
            raise UsageError("timeline [MOMENT]: a number, as 'timeline' shows them")
        debugger.travel(GO_TO, {"threadId": thread_id, "moment": int(argument)})
        return
    answer = debugger.client.request(TIMELINE, {"threadId": thread_id})
    debugger.screen.timeline(decode(answer, TimelineBody, f"body of '{TIMELINE}'"))


@command("assign", "NAME = EXPRESSION")
def assign(debugger: Debugger, argument: str) -> None:
    """Give a variable another value; in a trace, it goes on with that apart from the program."""
    name, equals, value = argument.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError("assign NAME = EXPRESSION, for instance: assign n = 5")
    debugger.stopped_thread()
    arguments = SetExpressionArguments(name.strip(), value.strip(), debugger.frame_id())
    body = debugger.change(lambda: debugger.client.ask("setExpression", arguments, SetExpressionResponseBody))
    debugger.screen.say(f"{name.strip()} = {body.value}")


@command("jump j", "LINE")
def jump(debugger: Debugger, argument: str) -> None:
    """Go on at another line of this function; in a trace, apart from the program."""
    line, thread_id = number(argument), debugger.stopped_thread()
    source = Source(path=debugger.current_path())
    targets = debugger.client.ask("gotoTargets", GotoTargetsArguments(source, line), GotoTargetsResponseBody).targets
    if not targets:
        raise UsageError(f"no line that can be gone to begins at line {line}")
    arguments = GotoArguments(thread_id, targets[0].id)
    debugger.change(lambda: debugger.client.request("goto", arguments))


@command("whatif diff")
def what_if(debugger: Debugger, argument: str) -> None:
    """Show how the graph of the trace that was changed last differs from the program's own."""
    body = decode(debugger.client.request(WHAT_IF), WhatIfBody, f"body of '{WHAT_IF}'")
    for change in body.changes:
        debugger.screen.note(f"changed: {change}")
    if body.problem is not None:
        debugger.screen.note(f"it ended: {body.problem}")
    if body.program_graph is None:
        debugger.screen.note("the program's own graph is not known yet: this is the changed one")
        debugger.screen.code(body.graph)
    else:
        debugger.screen.say(body.difference.rstrip() or "the graphs are the same")


@command("keep")
def keep(debugger: Debugger, argument: str) -> None:
    """Have this call run what comes of the changed trace, in place of what the program says."""
    debugger.client.request(KEEP, KeepArguments(debugger.stopped_thread()))
    debugger.drain()


@command("pause")
def pause(debugger: Debugger, argument: str) -> None:
    """Stop the running program (as Ctrl-C does)."""
    if debugger.state is not State.RUNNING:
        raise UsageError(f"the program {debugger.state.value}")
    debugger.pause()
    debugger.wait()


@command("restart")
def restart(debugger: Debugger, argument: str) -> None:
    """Run the program again from its beginning."""
    debugger.end()
    debugger.begin()
    debugger.resume("continue")


@command("quit q exit")
def leave(debugger: Debugger, argument: str) -> None:
    """End the program and leave."""
    raise Quit


# -- breakpoints -----------------------------------------------------------------------------------------------------


@command("break b", "PLACE [hit N] [if EXPR] [log TEXT]")
def add_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint at FILE:LINE, LINE or FUNCTION; without a place list them."""
    _add(debugger, argument, is_temporary=False)


@command("tbreak", "PLACE ...")
def add_temporary_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint that goes away when it is hit."""
    _add(debugger, argument, is_temporary=True)


@command("breakpoints")
def list_breakpoints(debugger: Debugger, argument: str) -> None:
    """List the breakpoints and what became of them."""
    debugger.screen.breakpoints(debugger.breakpoints.all)


@command("delete d", "[N ...]")
def delete_breakpoints(debugger: Debugger, argument: str) -> None:
    """Remove breakpoints by number, or all of them."""
    given = [number(word) for word in argument.split()]
    for one in given or [breakpoint.number for breakpoint in debugger.breakpoints.all]:
        removed = debugger.breakpoints.remove(one)
        if debugger.state is not State.ENDED:
            debugger.breakpoints.send_for(debugger.client, removed.place)


@command("catch", "[FILTER ...]")
def set_exception_filters(debugger: Debugger, argument: str) -> None:
    """Stop at the given kinds of exceptions and compile events only; without one list what there is."""
    offered = debugger.client.capabilities.exception_breakpoint_filters or []
    names = argument.split()
    for name in names:
        if name not in [one.filter for one in offered]:
            raise UsageError(f"there is no filter {name!r}, only: {', '.join(one.filter for one in offered) or 'none'}")
    if not names and not debugger.exception_filters:
        debugger.screen.help([(one.filter, one.description or one.label) for one in offered])
        return
    debugger.exception_filters = names
    debugger.client.set_exception_filters(names)


def _add(debugger: Debugger, argument: str, *, is_temporary: bool) -> None:
    if not argument:
        list_breakpoints(debugger, argument)
        return
    place = parse_place(argument, debugger.current_path())
    added = debugger.breakpoints.add(place, is_temporary=is_temporary)
    if debugger.state is not State.ENDED:
        debugger.breakpoints.send_for(debugger.client, place)
    debugger.screen.breakpoint(added)


# -- threads, frames, source lines -----------------------------------------------------------------------------------


@command("where w bt")
def show_call_stack(debugger: Debugger, argument: str) -> None:
    """Show the call stack."""
    debugger.screen.stack(debugger.frames(), debugger.selected, total=debugger.total_frames)


@command("up u", "[N]")
def go_up(debugger: Debugger, argument: str) -> None:
    """Select the frame that called this one."""
    debugger.select_frame(debugger.selected + number(argument or "1"))


@command("down", "[N]")
def go_down(debugger: Debugger, argument: str) -> None:
    """Select the frame that this one called."""
    debugger.select_frame(debugger.selected - number(argument or "1"))


@command("frame f", "[N]")
def select_frame(debugger: Debugger, argument: str) -> None:
    """Show the selected frame, or select another by its number."""
    debugger.select_frame(number(argument) if argument else debugger.selected)


@command("threads")
def show_threads(debugger: Debugger, argument: str) -> None:
    """List the program's threads."""
    debugger.screen.threads(debugger.client.threads(), debugger.stops, debugger.thread_id)


@command("thread", "N")
def select_thread(debugger: Debugger, argument: str) -> None:
    """Go to another stopped thread."""
    debugger.select_thread(number(argument))


@command("listing", "statements | instructions")
def show_listings_as(debugger: Debugger, argument: str) -> None:
    """Show generated code as Python, or its bytecode."""
    if argument not in LISTING_FORMS:
        raise UsageError(f"give {' or '.join(LISTING_FORMS)}")
    debugger.show_listings_as(argument)


@command("patch", "[N:] INSTRUCTION")
def patch_instruction(debugger: Debugger, argument: str) -> None:
    """Run another instruction here, or at number N of the listing, from the next call on: NOP, LOAD_FAST x, swap."""
    if not argument:
        raise UsageError("give an instruction, for instance: patch LOAD_FAST x")
    debugger.patch(argument)


@command("unpatch")
def take_patches_back(debugger: Debugger, argument: str) -> None:
    """Run generated code as Dynamo generated it again."""
    debugger.take_patches_back()


@command("list l", "[LINE | FIRST, LAST]")
def show_source(debugger: Debugger, argument: str) -> None:
    """Show the source around the current line, around another, or from one line to another."""
    first, comma, last = (part.strip() for part in argument.partition(","))
    if comma:
        debugger.show_frame(with_name=False, only=(number(first), number(last)))
    else:
        debugger.show_frame(with_name=False, around=number(first) if first else None)


# -- values ----------------------------------------------------------------------------------------------------------

_PAGE = 100
"""Children shown of one value."""
_TENSORS = 20
_TENSOR_LEVELS = 3
"""Of a container that is printed."""


def find_scope(debugger: Debugger, name: str) -> Scope:
    """The selected frame's scope of that name; case does not matter and ``_`` stands for a space.

    Raises:
        UsageError: it has none; says which there are.
    """
    scopes = debugger.scopes()
    wanted = name.lower().replace("_", " ")
    for scope in scopes:
        if scope.name.lower() == wanted:
            return scope
    raise UsageError(f"this frame has no scope {name!r}, only: {', '.join(scope.name for scope in scopes)}")


def find_reference(debugger: Debugger, path: list[str]) -> int:
    """The variables reference of what ``path`` leads to, 0 for none: a scope, a local or an expression, then children.

    Raises:
        UsageError: a name on the way is not there.
    """
    try:
        reference = find_scope(debugger, path[0]).variables_reference
        names = path[1:]
    except UsageError:
        reference = find_scope(debugger, "Locals").variables_reference
        names = path
    for position, name in enumerate(names):
        children = {child.name: child for child in debugger.children(reference)}
        if position == 0 and names is path and name not in children:
            reference = debugger.client.evaluate(name, debugger.frame_id(), "watch").variables_reference
            continue
        if name not in children:
            raise UsageError(f"there is no {name!r} here, only: {', '.join(list(children)[:20]) or 'nothing'}")
        reference = children[name].variables_reference
    return reference


def show_children(
    debugger: Debugger, reference: int, levels: int, depth: int = 0, *, indexed: int | None = None
) -> None:
    """Print the first children behind ``reference``, and ``levels - 1`` further levels below them.

    ``indexed`` is how many items there are, if that is known.
    """
    # A list of a million items is not to be sent, and not to be computed.
    children = debugger.children(reference, at_most=_PAGE + 1)
    if not children and depth == 0:
        debugger.screen.note("  (nothing)")
    for child in children[:_PAGE]:
        debugger.screen.variable(child, depth)
        if levels > 1 and child.variables_reference:
            items = child.indexed_variables
            show_children(debugger, child.variables_reference, levels - 1, depth + 1, indexed=items)
    if len(children) > _PAGE:
        count = "" if indexed is None else f" than {_PAGE} of {indexed} items"
        debugger.screen.note(f"{'  ' * depth}... more{count}")


def complete_expression(debugger: Debugger, expression: str) -> list[tuple[str, int]]:
    """What the server offers to complete ``expression``: what to insert, and how many characters it replaces."""
    targets = debugger.client.completions(expression, len(expression) + 1, debugger.frame_id())
    word = re.search(r"\w*$", expression)
    length = len(word[0]) if word else 0
    return [(target.text or target.label, length if target.length is None else target.length) for target in targets]


def complete_path(debugger: Debugger, path: str) -> list[tuple[str, int]]:
    """Names of scopes and locals, or of children, that go on from ``path``."""
    *above, begun = path.split("/")
    if above:
        names = [child.name for child in debugger.children(find_reference(debugger, above))]
    else:
        scopes = debugger.scopes()
        names = [scope.name.lower().replace(" ", "_") for scope in scopes]
        names += [child.name for child in debugger.children(scopes[0].variables_reference)] if scopes else []
    return [(name, len(begun)) for name in names if name.startswith(begun)]


@command("print p", "EXPRESSION", complete_expression)
def evaluate(debugger: Debugger, argument: str) -> None:
    """Evaluate in the selected frame; '! STATEMENT' runs a statement."""
    if not argument:
        raise UsageError("give an expression, for instance: print x.shape")
    shown = debugger.screen.output_count
    result = debugger.change(lambda: debugger.client.evaluate(argument, debugger.frame_id(), "repl"))
    # What prints, as ctx.print_locals() does, has said what there is to say.
    has_printed = debugger.screen.output_count > shown
    if result.result and not (has_printed and result.result == "None"):
        debugger.screen.say(f"{'▸ ' if result.variables_reference else ''}{result.result}")
        if result.result.startswith(("[", "(", "{")) and "Tensor " in result.result:
            _show_tensors(debugger, result.variables_reference)


def _show_tensors(debugger: Debugger, reference: int, depth: int = 1) -> None:
    """Print the tensors of a container with their data, which the container's own text leaves out."""
    children = debugger.children(reference, at_most=_TENSORS + 1)
    for child in children[:_TENSORS]:
        is_virtual = child.presentation_hint is not None and child.presentation_hint.kind == "virtual"
        if is_virtual or "Tensor " not in child.value:
            continue
        debugger.screen.variable(child, depth)
        if child.value.startswith(("[", "(", "{")) and depth < _TENSOR_LEVELS:
            _show_tensors(debugger, child.variables_reference, depth + 1)
    if len(children) > _TENSORS:
        debugger.screen.note(f"{'  ' * depth}... more: 'expand' shows them")


@command("show", "[EXPRESSION]", complete_expression)
def show_tensor(debugger: Debugger, argument: str) -> None:
    """Show a tensor: rows, statistics, a histogram; x[0, 5:9] for a part, without an expression its next rows."""
    debugger.show_tensor(argument)


@command("expand x", "PATH [DEPTH]", complete_path)
def expand(debugger: Debugger, argument: str) -> None:
    """Show what is below a value, given by an expression or by names of scopes and children with '/' between."""
    path, _, depth = argument.partition(" ")
    if not path:
        raise UsageError("give a path, for instance: expand config/weights/0 or expand graph")
    reference = find_reference(debugger, path.split("/"))
    show_children(debugger, reference, number(depth or "1"))


@command("scopes")
def show_scopes(debugger: Debugger, argument: str) -> None:
    """List the groups of variables that this frame has."""
    debugger.screen.scopes(debugger.scopes())


@command("scope", "NAME", complete_path)
def show_scope(debugger: Debugger, argument: str) -> None:
    """Show one group of variables."""
    scope = find_scope(debugger, argument)
    show_children(debugger, scope.variables_reference, 1)


@command("locals")
def show_locals(debugger: Debugger, argument: str) -> None:
    """Show the local variables."""
    show_scope(debugger, "Locals")


@command("stack")
def show_value_stack(debugger: Debugger, argument: str) -> None:
    """Show the value stack, bottom first."""
    show_scope(debugger, "Value Stack")


@command("guards")
def show_guards(debugger: Debugger, argument: str) -> None:
    """Show the guards so far."""
    show_scope(debugger, "Guards")


@command("graph")
def show_graph(debugger: Debugger, argument: str) -> None:
    """Show the graph so far."""
    scope = find_scope(debugger, "Graph")
    if scope.source is not None:
        debugger.screen.code("\n".join(debugger.sources.lines(debugger.client, scope.source)))
    else:
        show_children(debugger, scope.variables_reference, 1)


# -- help ------------------------------------------------------------------------------------------------------------


def complete_line(debugger: Debugger, text: str) -> list[tuple[str, int]]:
    """Completions for the text before the cursor: what to insert, and how many characters it replaces."""
    name, space, argument = text.lstrip().partition(" ")
    if not space:
        return [(one.names[0] + " ", len(name)) for one in commands if one.names[0].startswith(name)]
    try:
        complete = find(name).complete
        return list(complete(debugger, argument)) if complete is not None else []
    except (UsageError, RequestFailed, TimeoutError):
        return []


@command("help h ?", "[COMMAND]")
def show_help(debugger: Debugger, argument: str) -> None:
    """List the commands, or tell of one."""
    chosen = [find(argument)] if argument else commands
    debugger.screen.help([(f"{', '.join(one.names)} {one.argument}".rstrip(), one.meaning) for one in chosen])
