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
_PRIVATE = re.compile(r"\b___(?=[a-z])")
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
    for beginning, pattern, write in _FORMS:
        if text.startswith(beginning):
            match = pattern.match(text)
            if match is not None:
                return write(match)
    return plain_name(text.partition(", type=<class ")[0])


def plain_name(text: str) -> str:
    """Return a guard's expression with the user's names; a value that a break left has none."""
    text = in_user_terms(text)
    # A model has thousands of guards, most of which contain none of these.
    if "___" in text:
        text = _PRIVATE.sub("", _STACK.sub(r"intermediate value \1", text))
    if "keys(" in text:
        text = _KEYS.sub(lambda match: f"the keys of {match['first'] or match['second']}", text)
    if "__dict__" in text:
        text = _OF_CLASS.sub(r"\1.\2", text)
    if "()[" in text:
        text = _STRIDE.sub(r".stride(\1)", _SIZE.sub(r".shape[\1]", text))
    return text


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


_Write = Callable[[re.Match[str]], str]
_OF_NAME = r"(?P<name>.+)"
_EXPECTED = r"expected (?P<then>.+), actual (?P<now>.+)"
_WRITTEN: list[tuple[str, str, _Write]] = [
    ("___check_global_state()", "", lambda match: _STATE["GLOBAL_STATE"]),
    ("___check_torch_function_mode_stack()", "", lambda match: _STATE["TORCH_FUNCTION_STATE"]),
    (
        "hasattr(",
        r"(?P<name>.+?), '_dynamo_\w+'\) == False and ",
        lambda match: f"no size of {plain_name(match['name'])} is marked ({_marks(match.string)} checks)",
    ),
    (
        "hasattr(",
        rf"{_OF_NAME}, '_dynamo_(?:weak_)?dynamic_indices'\) == False",
        lambda match: f"no size of {plain_name(match['name'])} is marked as dynamic",
    ),
    (
        "hasattr(",
        rf"{_OF_NAME}, '_dynamo_(?P<mark>\w+)'\) == False",
        lambda match: f"{plain_name(match['name'])} is not marked ({match['mark'].replace('_', ' ')})",
    ),
    (
        "___check_type_id(",
        rf"{_OF_NAME}, \d+\){_TYPE}",
        lambda match: f"{plain_name(match['name'])} is of type {_type(match['type'])}",
    ),
    (
        "___check_obj_id(",
        rf"{_OF_NAME}, \d+\){_TYPE}",
        lambda match: f"{plain_name(match['name'])} is the {_KINDS.get(match['type'] or '', 'object')} it was",
    ),
    (
        "___dict_contains(",
        rf"(?P<key>.+?), {_OF_NAME}\)",
        lambda match: f"{plain_name(match['key'])} is in {plain_name(match['name'])}",
    ),
    (
        "not ___dict_contains(",
        rf"(?P<key>.+?), {_OF_NAME}\)",
        lambda match: f"{plain_name(match['key'])} is not in {plain_name(match['name'])}",
    ),
    ("CLOSURE_MATCH ", _OF_NAME, lambda match: f"{plain_name(match['name'])} has the code it had"),
    ("EMPTY_NN_MODULE_HOOKS_DICT ", _OF_NAME, lambda match: f"{plain_name(match['name'])} is empty"),
    (
        "NOT_PRESENT_IN_GENERIC_DICT ",
        _OF_NAME,
        lambda match: f"{plain_name(match['name'])} has no own attribute that hides the one of its class",
    ),
    (
        "___tuple_iterator_len(",
        rf"{_OF_NAME}\) == (?P<number>\d+)",
        lambda match: f"{plain_name(match['name'])} has {match['number']} items left",
    ),
    (
        "check_no_aliasing(",
        rf"{_OF_NAME}\)",
        lambda match: f"no two of {plain_name(match['name'])} are the same object",
    ),
    (
        "tensor '",
        rf"{_OF_NAME}' size mismatch at index (?P<at>\d+)\. {_EXPECTED}",
        lambda match: f"size {match['at']} of {plain_name(match['name'])} was {match['then']} and is {match['now']}",
    ),
    (
        "tensor '",
        rf"{_OF_NAME}' stride mismatch at index (?P<at>\d+)\. {_EXPECTED}",
        lambda match: f"stride {match['at']} of {plain_name(match['name'])} was {match['then']} and is {match['now']}",
    ),
    (
        "tensor '",
        rf"{_OF_NAME}' (?P<what>[\w ]+) mismatch\. {_EXPECTED}",
        lambda match: _mismatch(match["what"], plain_name(match["name"]), match["then"], match["now"]),
    ),
    (
        "tensor '",
        rf"{_OF_NAME}' requires_grad mismatch\. expected requires_grad=(?P<then>[01])$",
        lambda match: (
            f"{plain_name(match['name'])} required {'a' if match['then'] == '1' else 'no'} gradient and requires "
            f"{'none' if match['then'] == '1' else 'one'}"
        ),
    ),
    (
        "expected type of '",
        rf"{_OF_NAME}' to be (?:a tensor type, '|<class 'torch\.[^']+'>,) but found <class '(?P<type>[^']+)'>",
        lambda match: (
            f"{plain_name(match['name'])} was a tensor and is {_KINDS.get(match['type'], _type(match['type']))}"
        ),
    ),
]
"""How each text of torch begins, the pattern of its rest, and our sentence for it."""
_FORMS: list[tuple[str, re.Pattern[str], _Write]] = [
    ("check_tensor(", _TENSOR, _tensor),
    *((beginning, re.compile(re.escape(beginning) + rest), write) for beginning, rest, write in _WRITTEN),
]
"""In the order in which they are tried; the beginning spares most patterns."""
