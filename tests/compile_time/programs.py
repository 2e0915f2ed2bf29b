"""Programs that use as many of Dynamo's kinds of values as possible. Each takes ``compiled``, and returns results."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch._higher_order_ops.map import map as higher_order_map
from torch.nn import functional
from torch.utils._ordered_set import OrderedSet

Compiled = Callable[[Any], Any]


class Mode(enum.Enum):
    """A constant with a name."""

    ADD = "add"
    MULTIPLY = "multiply"


@dataclasses.dataclass
class Settings:
    """A mutable dataclass."""

    scale: float
    names: list[str]
    mode: Mode = Mode.ADD

    def total(self) -> float:
        return self.scale * len(self.names)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    width: int
    height: int


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


class Counter:
    """An object with a property, a slot-like attribute and methods."""

    limit = 10

    def __init__(self) -> None:
        self.count = 0
        self.history: list[int] = []

    @property
    def doubled(self) -> int:
        return self.count * 2

    def bump(self, by: int = 1) -> int:
        self.count += by
        self.history.append(self.count)
        return self.count


class Slotted:
    """An object without ``__dict__``."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Tagged(dict[str, Any]):
    """A dictionary of a user's class."""

    label = "tagged"


class Stack(list[Any]):
    """A list of a user's class."""

    def top(self) -> Any:
        return self[-1]


total_calls = 0


def graph_break(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, d: dict[str, Any]) -> torch.Tensor:
        y = x * 2
        d["doubled"] = y
        torch._dynamo.graph_break()
        z = y + len(d)
        if z.sum() > 0:
            return z.relu()
        return z - 1

    run = compiled(fn)
    d: dict[str, Any] = {"k": 1}
    return [run(torch.ones(3), d), run(-torch.ones(3), d), d]


def dynamic_shapes(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        size = x.shape[0]
        half = size // 2
        if size > 4:
            y = x[:half] * n
            y = y + 1
        else:
            y = torch.cat([x, x]) + half
        for i in range(min(size, 2)):
            y = y + i
        return y.view(-1).sum(0) + math.sqrt(4) + n

    run = compiled(fn)
    return [run(torch.ones(size, 2), n) for size, n in ((3, 1), (4, 1), (8, 5), (9, 6), (3, 7))]


def containers(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, xs: list[Any], d: dict[str, Any]) -> Any:
        xs.append(x + 1)
        t = (x, 1, None, "a")
        s = {1, 2, "three"}
        f = frozenset([1, 2])
        q = collections.deque([x, x * 2], maxlen=3)
        q.appendleft(x)
        od = collections.OrderedDict(a=x, b=2)
        od.move_to_end("a")
        dd = collections.defaultdict(list)
        dd["new"].append(x)
        p = Pair(x, right=[1, 2])
        stack = Stack([1, x])
        tagged = Tagged(a=1)
        tagged["b"] = x
        keys, values, items = d.keys(), d.values(), d.items()
        sl = slice(0, 2)
        r = range(2, 6, 2)
        z = x[sl] + sum(r) + len(s) + len(f) + len(q) + len(keys)
        for _, value in items:
            z = z + value
            d2 = {**d, "new": value}
        size = x.size()
        st = {k: v + 1 for k, v in zip(["u", "v"], [1, 2], strict=False)}
        del d["k"]
        return z, t, od, dd, p.right, stack.top(), tagged, list(values), d2, size, st

    run = compiled(fn)
    xs: list[Any] = [1]
    d: dict[str, Any] = {"k": 1, "l": 2}
    return [*run(torch.ones(3), xs, d), xs, d]


def iterators(compiled: Compiled) -> list[Any]:
    def numbers(n: int) -> Iterator[int]:
        for i in range(n):
            got = yield i * 2
            if got:
                yield got

    def fn(x: torch.Tensor, xs: list[int]) -> Any:
        g = numbers(4)
        first = next(g)
        squares = (i * i for i in xs)
        it = iter(xs)
        next(it)
        both = zip(xs, [x, x + 1], strict=False)
        mapped = map(lambda v: v + 1, xs)  # noqa: C417
        kept = filter(lambda v: v > 1, xs)
        counted = itertools.count(3)
        chained = itertools.chain(xs, [7])
        repeated = itertools.repeat(1)
        enumerated = enumerate(xs)
        rev = reversed(xs)
        keys = iter({"a": 1, "b": 2}.items())
        next(keys)
        total = first + sum(squares) + next(counted) + next(repeated) + next(enumerated)[1] + next(rev)
        for a, b in both:
            x = x + a * b
        x = x + sum(mapped) + sum(kept) + sum(chained) + sum(it) + total
        x = x + sum(g)
        cubes = [v**3 for v in xs]
        return x, cubes, {v: v for v in xs}

    return list(compiled(fn)(torch.ones(2), [1, 2, 3]))


def contexts(compiled: Compiled) -> list[Any]:
    @contextlib.contextmanager
    def scaled(by: int) -> Iterator[int]:
        yield by * 2

    class Manager:
        def __init__(self) -> None:
            self.entered = False

        def __enter__(self) -> Manager:
            self.entered = True
            return self

        def __exit__(self, *error: object) -> None:
            self.entered = False

    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16), contextlib.nullcontext():
            z = y @ y
        with scaled(3) as by, Manager() as manager:
            z = z + by + int(manager.entered)
        try:
            if by > 5:
                raise ValueError("too much", by)
        except ValueError as error:
            z = z + error.args[1]
        finally:
            z = z * 1
        with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings():
            z = z.float() + 1
        return y, z

    return list(compiled(fn)(torch.ones(2, 2)))


def closures(compiled: Compiled) -> list[Any]:
    global total_calls
    total_calls = 0

    def make(scale: int) -> Callable[[torch.Tensor], torch.Tensor]:
        calls = 0

        def fn(x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            global total_calls
            calls += 1
            total_calls = total_calls + 1
            bias = x.mean()

            def inner(v: torch.Tensor, k: int = 2, *, shift: float = 1.0) -> torch.Tensor:
                return v * k * scale + bias + shift

            add = functools.partial(operator.add, 3)
            half = functools.partial(inner, k=1)
            twice = lambda f, v: f(f(v))  # noqa: E731
            x = inner(x) + add(calls)
            x = half(x)
            return twice(inner, x)

        return fn

    run = compiled(make(3))
    return [run(torch.ones(2)), run(torch.ones(2)), total_calls]


def objects(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, counter: Counter, settings: Settings, frozen: Frozen, slotted: Slotted) -> Any:
        counter.bump()
        counter.bump(by=3)
        counter.extra = x * 2  # type: ignore[attr-defined]
        settings.names.append("new")
        settings.mode = Mode.MULTIPLY
        made = Settings(1.5, ["a"])
        made.scale = made.scale + 1
        local = Counter()
        local.bump(5)
        slotted.value = x + 1
        area = frozen.width * frozen.height
        mode = settings.mode
        if mode is Mode.MULTIPLY:
            x = x * settings.total()
        kind = type(counter)
        is_counter = isinstance(local, kind)
        name = f"{kind.__name__}-{area}"
        method = counter.bump
        reference = weakref.ref(counter)
        x = x + counter.doubled + local.count + area + int(is_counter) + kind.limit + method()
        return x, name, made, local, reference() is counter, getattr(counter, "missing", None)

    run = compiled(fn)
    counter, settings = Counter(), Settings(2.0, ["x"])
    slotted = Slotted(None)
    first = run(torch.ones(2), counter, settings, Frozen(2, 3), slotted)
    second = run(torch.ones(2), counter, settings, Frozen(2, 4), slotted)
    return [*first, *second, counter.count, counter.history, settings.names, settings.mode.value, slotted.value]


class Block(nn.Module):
    """A module with parameters, buffers, lists, state and a submodule used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        self.register_buffer("offset", torch.ones(4))
        self.scale = nn.Parameter(torch.ones(1))
        self.steps = 0
        self.cache: dict[str, Any] = {}
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, flag: bool = True) -> torch.Tensor:
        self.steps += 1
        for index, layer in enumerate(self.layers):
            x = layer(x) + index
        x = self.norm(x) * self.scale + self.offset
        self.cache["last"] = x
        if flag and self.training:
            x = functional.dropout(x, 0.5)
        return self.heads["a"](x).sum(-1)


def modules(compiled: Compiled) -> list[Any]:
    model = Block()
    run = compiled(model)
    first = run(torch.ones(3, 4))
    model.eval()
    second = run(torch.ones(3, 4), False)
    return [first, second, model.steps, model.cache, model.norm.running_mean]


def tensors(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, array: Any, number: float) -> Any:
        y = x.view(2, 2).t().contiguous()
        y.add_(1)
        made = torch.zeros(2, dtype=torch.int64)
        const = torch.tensor(3.0)
        mask = y > 1
        chosen = torch.where(mask, y, -y)
        a, b = chosen.unbind(0)
        parts = chosen.split(1)
        values, indices = chosen.max(dim=1)
        dtype, device = y.dtype, y.device
        np_part = np.add(array, 1) * number
        noise = torch.rand(2) + random.random()
        bound = y.add
        shape = y.shape
        many = torch.stack([a, b, *parts[0]])
        casted = made.to(dtype)
        grad = x.requires_grad
        return chosen, values, indices, np_part, noise, bound(1), shape, many, casted, const, grad, str(device)

    x = torch.arange(4.0)
    return [*compiled(fn)(x, np.ones(2), 2.5), x]


class Square(torch.autograd.Function):
    """An autograd function: its ``ctx`` is tracked as well."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, power: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.power * x, None


def functions(compiled: Compiled) -> list[Any]:
    @torch._dynamo.disable
    def hidden(v: torch.Tensor) -> torch.Tensor:
        return v + 100

    def fn(x: torch.Tensor) -> Any:
        y = Square.apply(x, 2)
        handle = y.register_hook(lambda grad: grad * 2)
        z = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        c = torch.utils.checkpoint.checkpoint(lambda a: a.sin().cos(), x, use_reentrant=False)
        try:
            int("no number")
        except ValueError:
            c = c + 1
        out = (y + z + c).sum()
        w = hidden(out)
        return w, handle is not None, functools.reduce(operator.add, [1, 2, 3]), max(x.dim(), 2)

    x = torch.ones(3, requires_grad=True)
    out = compiled(fn)(x)
    out[0].backward()
    return [*out, x.grad]


def bodies(compiled: Compiled) -> list[Any]:
    """Use bodies of higher-order operators: with captured values, nested, and some that Dynamo traces twice."""

    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        grown = x @ weight
        kept = grown.relu()
        return kept + grown

    def positive(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        doubled = first * 2
        together = doubled + second
        return together.sin()

    def negative(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        less = first - second
        return torch.cond(less.sum() > 0, lambda: less.cos() * second, lambda: less.tan() + second)

    def row(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        larger = one + other
        return larger * 2

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        z = x + 1
        h = torch.utils.checkpoint.checkpoint(layer, z, weight, use_reentrant=False)
        g = torch.utils.checkpoint.checkpoint(layer, h, weight, use_reentrant=False)
        w = torch.cond(g.sum() > 0, positive, negative, (g, z))
        rows = higher_order_map(row, w, z[0])
        return w + rows

    return [compiled(fn)(torch.arange(6.0).reshape(2, 3), torch.eye(3))]


def transforms(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda v: (v * v).sum())(x)

    return [compiled(fn)(torch.ones(3))]


class Problem(Exception):
    """An exception with state."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Base:
    """Kinds of attributes that classes have."""

    table = types.MappingProxyType({"a": 1})

    @staticmethod
    def fixed(v: int) -> int:
        return v + 1

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def value(self) -> int:
        return 1


class Derived(Base):
    """Calls its base."""

    def value(self) -> int:
        return super().value() + 1


class Subclass(torch.Tensor):
    """A tensor subclass without behaviour of its own."""


def rare_values(compiled: Compiled) -> list[Any]:  # noqa: C901  (small functions in one)
    @functools.wraps(math.sqrt)
    def wrapped(v: float) -> float:
        return math.sqrt(v)

    def classes(x: torch.Tensor) -> Any:
        derived = Derived()
        method = Base.fixed
        named = derived.named
        return x + derived.value() + derived.fixed(2) + len(named()) + Base.table["a"] + method(1)

    def texts(x: torch.Tensor, n: int) -> Any:
        text = "{}-{}".format(n, "a")
        return x + 1, text, f"{x.shape[0]} rows"

    def exceptions(x: torch.Tensor) -> Any:
        problem = Problem("no", 3)
        problem.__cause__ = ValueError("why")
        return x + problem.code

    def managers(x: torch.Tensor) -> Any:
        with torch.device("cpu"), torch.autograd.profiler.record_function("part"):
            y = x + torch.ones(2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            q = x.view(1, 1, 2, 1).expand(1, 1, 2, 2)
            return y + functional.scaled_dot_product_attention(q, q, q).sum()

    def storages(x: torch.Tensor) -> Any:
        storage = x.untyped_storage()
        size = storage.nbytes()
        return x + size

    def numbers(x: torch.Tensor) -> Any:
        dtype = np.dtype("float32")
        generator = random.Random(3)
        drawn = generator.random()
        spec = torch.finfo(torch.float32).max > 1
        root = wrapped(4.0)
        return x + drawn + int(spec) + root, str(dtype)

    def sets(x: torch.Tensor) -> Any:
        ordered = OrderedSet([1, 2])
        keys = {"a": 1}.keys() | {"b": 2}.keys()
        difference = {1, 2, 3} - frozenset([1])
        return x + len(ordered) + len(keys) + len(difference)

    def trees(x: torch.Tensor) -> Any:
        flat, spec = torch.utils._pytree.tree_flatten([x, {"k": x}])
        getter = operator.attrgetter("shape")
        return torch.utils._pytree.tree_unflatten(flat, spec), getter(x)

    def subclasses(x: torch.Tensor, sub: torch.Tensor) -> Any:
        y = sub + 1
        kind = type(sub)
        return y, isinstance(x, kind)

    def parameters(x: torch.Tensor) -> Any:
        parameter = nn.Parameter(torch.ones(2))
        return x + parameter

    def optimizers(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        return x + len(optimizer.param_groups)

    def matching(x: torch.Tensor, n: Any) -> Any:
        match n:
            case {"a": value, **rest}:
                return x * value + len(rest)
            case _:
                return x

    def maxima(x: torch.Tensor) -> Any:
        result = x.max(dim=0)
        values, indices = result
        return result.values + values, indices, torch.is_grad_enabled(), x.grad_fn

    x = torch.ones(2)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    sub = torch.ones(2).as_subclass(Subclass)
    results = [compiled(fn)(x) for fn in (classes, exceptions, managers, storages, numbers, sets, trees, parameters)]
    results += [compiled(fn)(x) for fn in (optimizers, maxima)]
    results += [compiled(texts)(x, 3), compiled(texts)(torch.ones(3), 4), compiled(subclasses)(x, sub)]
    return [*results, compiled(matching)(x, {"a": 2, "b": 3})]


def encoder_layer(compiled: Compiled) -> list[Any]:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)
    run = compiled(layer)
    x = torch.ones(4, 2, 8)
    return [run(x), run(torch.ones(5, 2, 8))]


PROGRAMS = (
    graph_break,
    dynamic_shapes,
    containers,
    iterators,
    contexts,
    closures,
    objects,
    modules,
    tensors,
    functions,
    bodies,
    transforms,
    rare_values,
    encoder_layer,
)
