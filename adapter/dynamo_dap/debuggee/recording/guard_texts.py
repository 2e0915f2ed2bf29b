"""Translates torch's guards into sentences: ``x is f32[any, 2]``, ``torch is the module it was``.

The functions have no side effects. Torch writes guards as internal code: ``___check_obj_id(G['torch'],
139788182681088), type=<class 'module'>``. An unknown kind of guard keeps torch's text, with the user's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import abbreviated
from dynamo_dap.protocol.texts import in_user_terms, kinds_of_tensors

_STATE = {
    "SHAPE_ENV": "no condition on sizes",
    "GRAD_MODE": "grad mode is as it was",
    "DETERMINISTIC_ALGORITHMS": "use of deterministic algorithms is as it was",
    "GLOBAL_STATE": "global state (grad mode, autocast, threads, default dtype) is as it was",
    "TORCH_FUNCTION_STATE": "torch function modes are as they were",
    "FSDP_TRAINING_STATE": "FSDP's training state is as it was",
    "utils_device.CURRENT_DEVICE == None": "no default device is set",
    "torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None": "no hooks on saved tensors are set",
}
_TENSOR = re.compile(
    r"check_tensor\((?P<name>.+?), (?P<kind>[\w.<>]+), DispatchKeySet\((?P<keys>[^)]*)\), torch\.(?P<dtype>\w+), "
    r"device=(?P<device>[^,]+), requires_grad=(?P<grad>\w+), size=\[(?P<sizes>[^\]]*)\]"
    r"(?:, stride=\[(?P<strides>[^\]]*)\])?"
)
_TYPE = r"(?:, type=<class '(?P<type>[^']*)'>)?"
_KINDS = {
    "module": "module",
    "function": "function",
    "method": "method",
    "builtin_function_or_method": "function",
    "type": "class",
    "NoneType": "None",
}
_STACK = re.compile(r"\b___stack(\d+)\b")
_SIZE = re.compile(r"\.size\(\)\[(\d+)\]")
_STRIDE = re.compile(r"\.stride\(\)\[(\d+)\]")
_OF_CLASS = re.compile(r"\bdict\((type\([^()]+\))(?:\.__mro__\[\d+\])?\.__dict__\)\['(\w+)'\]")
_KEYS = re.compile(r"list\((?:dict\.keys\((?P<first>.+?)\)|(?P<second>.+?)\.keys\(\))\)")


def guard_text(expression: str) -> str:
    """Return a guard or its failure in plain words, with the user's names."""
    text = expression.strip()
    if text in _STATE:
        return _STATE[text]
    for pattern, write in _FORMS:
        match = pattern.match(text)
        if match is not None:
            return write(match)
    return plain_name(text.partition(", type=<class ")[0])


def plain_name(text: str) -> str:
    """Return a guard's expression with the user's names; a value that a break left has none."""
    text = in_user_terms(text)
    text = _STACK.sub(r"intermediate value \1", text) if "___stack" in text else text
    text = _KEYS.sub(lambda match: f"the keys of {match['first'] or match['second']}", text)
    text = _OF_CLASS.sub(r"\1.\2", text)
    text = _STRIDE.sub(r".stride(\1)", _SIZE.sub(r".shape[\1]", text))
    return re.sub(r"\b___(?=[a-z])", "", text)


def _type(name: str | None) -> str:
    return "as it was" if not name else name.removeprefix("__main__.").removeprefix("builtins.")


def _value(text: str) -> str:
    return text.strip().rstrip(".").removeprefix("requires_grad=")


def _mismatch(what: str, name: str, then: str, now: str) -> str:
    kinds = kinds_of_tensors(then, now) if what == "dispatch key set" else None
    if kinds is not None:
        return f"{name} was {kinds[0]} and is {kinds[1]}"
    return f"{what} of {name} was {_value(then)} and is {_value(now)}"


def _marks(text: str) -> int:
    return text.count(", '_dynamo_")


def _tensor(match: re.Match[str]) -> str:
    sizes = match["sizes"].replace("None", "any")
    device = match["device"] if match["device"] != "None" else match["keys"].partition(",")[0].lower()
    device = f"{match['keys'].partition(',')[0].lower()}:{device}" if device.isdigit() else device
    kind = "" if match["kind"].rpartition(".")[2] in ("Tensor", "Parameter") else f"{match['kind']} "
    parts = [f"{plain_name(match['name'])} is {kind}{abbreviated(match['dtype'])}[{sizes}]", f"on {device}"]
    if match["strides"]:
        parts.append(f"strides [{match['strides'].replace('None', 'any')}]")
    parts.append("requires grad" if match["grad"] == "True" else "no grad")
    return ", ".join(parts)


_FORMS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (_TENSOR, _tensor),
    (re.compile(r"___check_global_state\(\)"), lambda match: _STATE["GLOBAL_STATE"]),
    (re.compile(r"___check_torch_function_mode_stack\(\)"), lambda match: _STATE["TORCH_FUNCTION_STATE"]),
    (
        re.compile(r"hasattr\((?P<name>.+?), '_dynamo_\w+'\) == False and "),
        lambda match: f"no size of {plain_name(match['name'])} is marked ({_marks(match.string)} checks)",
    ),
    (
        re.compile(r"hasattr\((?P<name>.+), '_dynamo_(?:weak_)?dynamic_indices'\) == False"),
        lambda match: f"no size of {plain_name(match['name'])} is marked as dynamic",
    ),
    (
        re.compile(r"hasattr\((?P<name>.+), '_dynamo_(?P<mark>\w+)'\) == False"),
        lambda match: f"{plain_name(match['name'])} is not marked ({match['mark'].replace('_', ' ')})",
    ),
    (
        re.compile(rf"___check_type_id\((?P<name>.+), \d+\){_TYPE}"),
        lambda match: f"{plain_name(match['name'])} is of type {_type(match['type'])}",
    ),
    (
        re.compile(rf"___check_obj_id\((?P<name>.+), \d+\){_TYPE}"),
        lambda match: f"{plain_name(match['name'])} is the {_KINDS.get(match['type'] or '', 'object')} it was",
    ),
    (
        re.compile(r"(?P<no>not )?___dict_contains\((?P<key>.+?), (?P<name>.+)\)"),
        lambda match: f"{plain_name(match['key'])} is {'not ' if match['no'] else ''}in {plain_name(match['name'])}",
    ),
    (re.compile(r"CLOSURE_MATCH (?P<name>.+)"), lambda match: f"{plain_name(match['name'])} has the code it had"),
    (re.compile(r"EMPTY_NN_MODULE_HOOKS_DICT (?P<name>.+)"), lambda match: f"{plain_name(match['name'])} is empty"),
    (
        re.compile(r"NOT_PRESENT_IN_GENERIC_DICT (?P<name>.+)"),
        lambda match: f"{plain_name(match['name'])} has no own attribute that hides the one of its class",
    ),
    (
        re.compile(r"___tuple_iterator_len\((?P<name>.+)\) == (?P<number>\d+)"),
        lambda match: f"{plain_name(match['name'])} has {match['number']} items left",
    ),
    (
        re.compile(r"check_no_aliasing\((?P<names>.+)\)"),
        lambda match: f"no two of {plain_name(match['names'])} are the same object",
    ),
    (
        re.compile(
            r"tensor '(?P<name>.+)' size mismatch at index (?P<at>\d+)\. expected (?P<then>.+), actual (?P<now>.+)"
        ),
        lambda match: f"size {match['at']} of {plain_name(match['name'])} was {match['then']} and is {match['now']}",
    ),
    (
        re.compile(
            r"tensor '(?P<name>.+)' stride mismatch at index (?P<at>\d+)\. expected (?P<then>.+), actual (?P<now>.+)"
        ),
        lambda match: f"stride {match['at']} of {plain_name(match['name'])} was {match['then']} and is {match['now']}",
    ),
    (
        re.compile(r"tensor '(?P<name>.+)' (?P<what>[\w ]+) mismatch\. expected (?P<then>.+), actual (?P<now>.+)"),
        lambda match: _mismatch(match["what"], plain_name(match["name"]), match["then"], match["now"]),
    ),
    (
        re.compile(r"tensor '(?P<name>.+)' requires_grad mismatch\. expected requires_grad=(?P<then>[01])$"),
        lambda match: (
            f"{plain_name(match['name'])} required {'a' if match['then'] == '1' else 'no'} gradient and requires "
            f"{'none' if match['then'] == '1' else 'one'}"
        ),
    ),
    (
        re.compile(
            r"expected type of '(?P<name>.+)' to be (?:a tensor type, '|<class 'torch\.[^']+'>,) "
            r"but found <class '(?P<type>[^']+)'>"
        ),
        lambda match: (
            f"{plain_name(match['name'])} was a tensor and is {_KINDS.get(match['type'], _type(match['type']))}"
        ),
    ),
]
