"""Shows functions, methods, generators, modules and exceptions, with their place in the source.

Runs on the held thread only.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a
from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.torch_api.compiles.compilation import compiled_original, is_disabled
from dynamo_dap.debuggee.values.eager_frames import locals_of
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Family,
    Location,
    Value,
    Variable,
    View,
    family_for,
    family_of,
)
from dynamo_dap.debuggee.values.objects import attribute_variable, attributes_of
from dynamo_dap.debuggee.values.paging import in_pages, unique_names
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, qualified_name_of

_VARIABLE_POSITIONAL, _VARIABLE_KEYWORDS = 0x04, 0x08


def location_of_code(code: types.CodeType) -> Location | None:
    """Return where ``code`` begins; None for code that has no file."""
    return None if code.co_filename.startswith("<") else Location(code.co_filename, max(code.co_firstlineno, 1))


def parameters_of(code: types.CodeType) -> str:
    """Return the parameter list as written, without defaults and annotations: ``x, *args, key, **options``."""
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    parts = list(names[:positional])
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    following = positional + keywords
    if code.co_flags & _VARIABLE_POSITIONAL:
        parts.append(f"*{names[following]}")
        following += 1
    elif keywords:
        parts.append("*")
    parts.extend(names[positional : positional + keywords])
    if code.co_flags & _VARIABLE_KEYWORDS:
        parts.append(f"**{names[following]}")
    return ", ".join(parts)


def location_of_callable(value: object) -> Location | None:
    """Return where a function, method or partial application is written."""
    return family_of(value).location(value)


@family_for(types.FunctionType)
class Functions(Family):
    """Python functions."""

    kind = "method"

    def text(self, value: types.FunctionType, width: int, depth: int, view: View) -> str:
        """Return ``function name(parameters)``; a function that ``torch.compile`` returned shows as the user's."""
        original = compiled_original(value)
        if type(original) is types.FunctionType:
            word = "disabled" if is_disabled(value) else "compiled"
            return f"{word} {self.text(original, width, depth, view)}"
        name = value.__qualname__.rpartition("<locals>.")[2]
        return f"function {name}({parameters_of(value.__code__)})"

    def children(self, value: types.FunctionType, expression: str | None, view: View) -> Children | None:
        """Return defaults, closure, attributes, module."""

        def make() -> list[Variable]:
            return unique_names(
                [
                    *_defaults(value, view),
                    *_closure(value, view),
                    *attributes_of(value, expression, view),
                    _module(value, view),
                ]
            )

        return Deferred(make)

    def location(self, value: types.FunctionType) -> Location | None:
        """Return where its ``def`` is; for a result of ``torch.compile``, the user's ``def``."""
        original = compiled_original(value)
        return location_of_code((original if type(original) is types.FunctionType else value).__code__)


def _defaults(function: types.FunctionType, view: View) -> list[Variable]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    values = function.__defaults__ or ()
    named = dict(zip(positional[len(positional) - len(values) :], values, strict=False))
    named.update(function.__kwdefaults__ or {})
    return [Variable(f"default {name}", view.value(default)) for name, default in named.items()]


def _closure(function: types.FunctionType, view: View) -> list[Variable]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return [Variable(f"closure {name}", view.value(cell)) for name, cell in cells]


def _module(function: types.FunctionType, view: View) -> Variable:
    return Variable("module", view.value(function.__module__))


@family_for(types.CellType)
class Cells(Family):
    """Cells of closures: shown as their contents."""

    def text(self, value: types.CellType, width: int, depth: int, view: View) -> str:
        """Return the contents' text."""
        try:
            return view.text(value.cell_contents, width, depth)
        except ValueError:
            return "<empty cell>"

    def children(self, value: types.CellType, expression: str | None, view: View) -> Children | None:
        """Return the contents' children."""
        try:
            return view.value(value.cell_contents, f"{expression}.cell_contents" if expression else None).children
        except ValueError:
            return None


@family_for(types.MethodType)
class Methods(Family):
    """Methods bound to an object."""

    kind = "method"

    def text(self, value: types.MethodType, width: int, depth: int, view: View) -> str:
        """Return ``method Class.name(parameters)``."""
        function = value.__func__
        if type(function) is not types.FunctionType:
            return f"method {getattr(function, '__name__', type(function).__name__)}"
        return f"method {function.__qualname__.rpartition('<locals>.')[2]}({parameters_of(function.__code__)})"

    def children(self, value: types.MethodType, expression: str | None, view: View) -> Children | None:
        """Return the object it is bound to, and the function."""

        def make() -> list[Variable]:
            parts = (("__self__", value.__self__), ("__func__", value.__func__))
            return [attribute_variable(name, part, expression, view) for name, part in parts]

        return Deferred(make, count=2)

    def location(self, value: types.MethodType) -> Location | None:
        """Return where its ``def`` is."""
        function = value.__func__
        return location_of_code(function.__code__) if type(function) is types.FunctionType else None


@family_for(
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
class BuiltinFunctions(Family):
    """Functions written in C."""

    kind = "method"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return ``built-in module.name``."""
        module = getattr(value, "__module__", None)
        owner = f"{module}." if type(module) is str and module != "builtins" else ""
        name = getattr(value, "__qualname__", value.__name__)
        return f"built-in {owner}{name.removeprefix('_VariableFunctionsClass.')}"


@family_for(types.GetSetDescriptorType, types.MemberDescriptorType)
class Descriptors(Family):
    """Attributes that a C type or ``__slots__`` defines, as the class stores them."""

    kind = "property"

    def text(
        self, value: types.GetSetDescriptorType | types.MemberDescriptorType, width: int, depth: int, view: View
    ) -> str:
        """Return ``attribute Class.name``."""
        return f"attribute {qualified_name_of(value.__objclass__)}.{value.__name__}"


@family_for(type(functools.lru_cache(lambda: None)))
class CachedFunctions(Family):
    """Functions under ``functools.cache`` or ``lru_cache``."""

    kind = "method"

    def text(self, value: functools._lru_cache_wrapper[object], width: int, depth: int, view: View) -> str:
        """Return ``cached`` and the function."""
        return f"cached {view.text(value.__wrapped__, width, depth)}"

    def location(self, value: functools._lru_cache_wrapper[object]) -> Location | None:
        """Return the function's place."""
        return location_of_callable(value.__wrapped__)


@family_for(staticmethod, classmethod)
class WrappedMethods(Family):
    """Static and class methods as a class stores them."""

    kind = "method"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return ``static`` or ``class``, and the function."""
        return f"{name_of_wrapper(value)} {view.text(value.__func__, width, depth)}"

    def location(self, value: Any) -> Location | None:
        """Return the function's place."""
        return location_of_callable(value.__func__)


def name_of_wrapper(value: object) -> str:
    """Return ``static`` for a static method, ``class`` for a class method."""
    return "static" if isinstance(value, staticmethod) else "class"


@family_for(property, functools.cached_property)
class Properties(Family):
    """Properties as a class stores them; never evaluated."""

    kind = "property"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return ``property`` and its getter."""
        getter = value.fget if isinstance(value, property) else value.func
        return f"property {getattr(getter, '__name__', '')}".rstrip()

    def location(self, value: Any) -> Location | None:
        """Return the getter's place."""
        getter = value.fget if isinstance(value, property) else value.func
        return location_of_code(getter.__code__) if type(getter) is types.FunctionType else None


@family_for(functools.partial)
class Partials(Family):
    """Partial applications."""

    kind = "method"

    def text(self, value: functools.partial[Any], width: int, depth: int, view: View) -> str:
        """Return ``partial(function, arguments)``."""
        arguments = [view.text(argument, width // 4, depth - 1) for argument in value.args[:8]]
        arguments += [
            f"{name}={view.text(item, width // 4, depth - 1)}" for name, item in list(value.keywords.items())[:8]
        ]
        return f"partial({', '.join([view.text(value.func, width // 2, depth - 1), *arguments])})"

    def children(self, value: functools.partial[object], expression: str | None, view: View) -> Children | None:
        """Return function and arguments."""
        parts = (("func", value.func), ("args", value.args), ("keywords", value.keywords))
        return Deferred(lambda: [attribute_variable(name, part, expression, view) for name, part in parts], count=3)

    def location(self, value: functools.partial[object]) -> Location | None:
        """Return the function's place."""
        return location_of_callable(value.func)


@family_for(types.CodeType)
class Codes(Family):
    """Code objects."""

    def text(self, value: types.CodeType, width: int, depth: int, view: View) -> str:
        """Return name, file and line."""
        return f"code {value.co_name}({parameters_of(value)}), {value.co_filename}:{value.co_firstlineno}"

    def location(self, value: types.CodeType) -> Location | None:
        """Return its first line."""
        return location_of_code(value)


@family_for(types.ModuleType)
class Modules(Family):
    """Modules: their names, in pages."""

    kind = "class"

    def text(self, value: types.ModuleType, width: int, depth: int, view: View) -> str:
        """Return ``<module name>``."""
        return f"<module {instance_dictionary(value).get('__name__', '?')}>"

    def type_name(self, value: types.ModuleType) -> str:
        """Return ``module``, also for a module with a class of its own."""
        return "module"

    def children(self, value: types.ModuleType, expression: str | None, view: View) -> Children | None:
        """Return its public names, then the others."""
        names = instance_dictionary(value)

        def page(start: int, stop: int) -> list[Variable]:
            entries = sorted(names.items(), key=lambda entry: str(entry[0]).startswith("_"))
            return [attribute_variable(str(name), item, expression, view) for name, item in entries[start:stop]]

        return in_pages(len(names), page)

    def location(self, value: types.ModuleType) -> Location | None:
        """Return its file."""
        path = instance_dictionary(value).get("__file__")
        return Location(path, 1) if type(path) is str and path.endswith(".py") else None


@family_for(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
class Generators(Family):
    """Generators and coroutines: where they are, and their locals."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the kind, the function and the line where it is suspended."""
        code, frame = _code_and_frame(value)
        name = f"{qualified_name_of(type(value))} {qualified_name(code)}"
        return f"{name} (finished)" if frame is None else f"{name} (at line {frame.f_lineno})"

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return the locals of its frame."""
        _, frame = _code_and_frame(value)
        if frame is None:
            return None
        return locals_of(frame, with_expressions=False)

    def location(self, value: object) -> Location | None:
        """Return the line where it is suspended, else its definition."""
        code, frame = _code_and_frame(value)
        place = location_of_code(code)
        return Location(place.path, frame.f_lineno) if place and frame is not None and frame.f_lineno else place


def _code_and_frame(value: object) -> tuple[types.CodeType, types.FrameType | None]:
    prefix = "gi" if is_a(value, types.GeneratorType) else "cr" if is_a(value, types.CoroutineType) else "ag"
    return getattr(value, f"{prefix}_code"), getattr(value, f"{prefix}_frame")


_arguments_of = BaseException.__dict__["args"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__


@family_for(BaseException)
class Exceptions(Family):
    """Exceptions: class and arguments, causes below."""

    def text(self, value: BaseException, width: int, depth: int, view: View) -> str:
        """Return ``ValueError('message')``."""
        arguments = _arguments_of(value)
        inside = ", ".join(
            view.text(argument, width // max(len(arguments), 1), depth - 1) for argument in arguments[:8]
        )
        return f"{qualified_name_of(type(value))}({inside})"

    def children(self, value: BaseException, expression: str | None, view: View) -> Children | None:
        """Return arguments, stored attributes, cause, context, and the lines of the traceback."""

        def make() -> list[Variable]:
            parts = [attribute_variable("args", _arguments_of(value), expression, view)]
            parts += attributes_of(value, expression, view)
            for name in ("__cause__", "__context__"):
                related = BaseException.__dict__[name].__get__(value)
                if related is not None:
                    parts.append(attribute_variable(name, related, expression, view))
            trace: types.TracebackType | None = _traceback_of(value)
            if trace is not None:
                parts.append(Variable("traceback", _traceback(trace)))
            return unique_names(parts)

        return Deferred(make)


def _traceback(trace: types.TracebackType) -> Value:
    lines: list[Variable] = []
    following: types.TracebackType | None = trace
    while following is not None and len(lines) < _TRACEBACK_LINES:
        code = following.tb_frame.f_code
        place = Location(code.co_filename, max(following.tb_lineno, 1))
        lines.append(Variable(str(len(lines)), Value(f"{code.co_name}, line {place.line}", location=place)))
        following = following.tb_next
    deepest = lines[-1].value
    return Value(deepest.text, children=Deferred(lambda: lines, count=len(lines)), location=deepest.location)


_TRACEBACK_LINES = 100
