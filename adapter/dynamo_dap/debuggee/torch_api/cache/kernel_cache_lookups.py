"""Reports hits and misses of Triton's, autotune, remote and precompile caches, with the parts of each key.

Torch writes no event for these lookups, so this module wraps the functions that make them, and computes the parts of
each key from their arguments. Triton compiles in other processes unless TORCHINDUCTOR_COMPILE_THREADS is 1; lookups of
other processes are not seen. Hooks are installed once, for the life of the process. They run on the compiling thread.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dynamo_dap.debuggee.torch_api.cache.cache_lookups import LOOKUPS, CacheLookupFacts, current_compile_id
from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches
from dynamo_dap.protocol.texts import in_user_terms

_REMOTE = "torch._inductor.remote_cache"
_AUTOTUNE = "torch._inductor.runtime.autotune_cache"
_PACKAGE = "torch._dynamo.package"
_TRITON = "triton.compiler.compiler"
_CODE_HASH = f"{_AUTOTUNE}:_comment_stripped_hash"
_GET = f"{_REMOTE}:RemoteCache.get"
_KEY, _READ = f"{_AUTOTUNE}:AutotuneCache.create", f"{_AUTOTUNE}:AutotuneCache.read_best"
_BUNDLE = f"{_AUTOTUNE}:AutotuneCacheBundler.begin_compile"
_LOAD_BUNDLE = f"{_AUTOTUNE}:_AutotuneCacheBundlerImpl._load_cache"
_COMPILE = "torch._dynamo.convert_frame:_compile"
_ENTRIES = "torch._C._dynamo.eval_frame:_debug_get_precompile_entries"
_LOAD, _INITIALIZE = f"{_PACKAGE}:DiskDynamoCache.load", f"{_PACKAGE}:CompilePackage.initialize"

REMOTE_CACHES = Feature("lookups in remote caches", _GET)
AUTOTUNE_CACHES = Feature("lookups in autotune caches", _KEY, _READ, _BUNDLE, _LOAD_BUNDLE, _CODE_HASH)
PRECOMPILE_CACHE = Feature("lookups in the precompile cache", _LOAD, _INITIALIZE, _COMPILE, _ENTRIES)
_OF_TRITON = ("get_cache_key", "CompiledKernel.__init__", "ASTSource.make_ir", "IRSource.make_ir")
"""Names of Triton that its lookups need; older versions lack the first."""
_NAMES = {
    "RemoteFxGraphCache": "remote FX graph cache",
    "RemoteAOTAutogradCache": "remote AOTAutograd cache",
    "RemoteAutotuneCache": "remote autotune cache",
}
"""The caches of each class. Facebook's own classes have the prefix ``Fb``."""
_DIGITS = 16

Part = tuple[str, object]
Report = Callable[[CacheLookupFacts, types.CodeType | None], None]
Hook = Generator[None, Outcome, None]


class KernelCacheLookups:
    """Reports each lookup of this process."""

    def __init__(self, report: Report) -> None:
        """Call ``report`` with each lookup. If its compile has not begun, also pass the code that will be compiled."""
        self._report = report
        self._patches = Patches("keys of other caches")
        self._thread = threading.local()

    def install(self) -> None:
        """Report from now on."""
        if LOOKUPS.problem is not None:
            return
        when_imported(_REMOTE, lambda: self._watch(REMOTE_CACHES, {_GET: self._on_remote}))
        tuned: dict[str, Callable[..., Hook]] = {_KEY: self._on_autotune_key, _READ: self._on_autotune}
        tuned |= {_BUNDLE: self._on_bundle_key, _LOAD_BUNDLE: self._on_bundle}
        when_imported(_AUTOTUNE, lambda: self._watch(AUTOTUNE_CACHES, tuned))
        packages: dict[str, Callable[..., Hook]] = {_LOAD: self._on_load, _INITIALIZE: self._on_package}
        packages[_COMPILE] = self._on_compile
        when_imported(_PACKAGE, lambda: self._watch(PRECOMPILE_CACHE, packages))
        when_imported(_TRITON, self._watch_triton)

    def _watch(self, feature: Feature, hooks: Mapping[str, Callable[..., Hook]]) -> None:
        if feature.problem is None:
            for need, hook in hooks.items():
                self._patches.around(*owner_of(need), hook)

    def _watch_triton(self) -> None:
        try:
            owners = [owner_of(f"{_TRITON}:{name}") for name in _OF_TRITON]
        except AttributeError:
            return
        if all(hasattr(owner, name) for owner, name in owners):
            hooks = (self._on_triton_key, self._on_triton, self._on_triton_miss, self._on_triton_miss)
            for (owner, name), hook in zip(owners, hooks, strict=True):
                self._patches.around(owner, name, hook)

    def _found(
        self, cache: str, result: str, key: str | None, parts: Iterator[Part], reason: str | None = None
    ) -> CacheLookupFacts:
        return CacheLookupFacts(cache, result, key, reason, [_part(*each) for each in parts], current_compile_id())

    # -- remote caches -------------------------------------------------------------------------------------------------

    def _on_remote(self, cache: object, key: str) -> Hook:
        outcome = yield None
        name = _NAMES.get(type(cache).__name__.removeprefix("Fb"))
        if name is not None and replayed_call() is None:
            result = "error" if outcome.error is not None else "miss" if outcome.result is None else "hit"
            reason = None if outcome.error is None else str(outcome.error)
            # Its parts are those of the local key, which is the same.
            self._report(self._found(name, result, key, iter(()), reason), None)

    # -- autotuning ----------------------------------------------------------------------------------------------------

    def _on_autotune_key(self, meta: Mapping[str, object], filename: str, configs: str) -> Hook:
        yield None
        self._thread.autotune = list(_of_autotune(meta, filename, configs))

    def _on_autotune(self, cache: object, *_: object) -> Hook:
        outcome = yield None
        parts = getattr(self._thread, "autotune", None)
        if outcome.error is None and parts is not None and replayed_call() is None:
            result = "miss" if outcome.result is None else "hit"
            local = getattr(cache, "local_cache", None)
            self._report(self._found("autotune cache", result, local and str(local[1]), iter(parts)), None)

    def _on_bundle_key(
        self, _class: object, meta: Mapping[str, object], *, code: str | None = None, code_hash: str | None = None
    ) -> Hook:
        text = code_hash if code is None else AUTOTUNE_CACHES.resolve(_CODE_HASH)(code)
        self._thread.bundle = [("autotune_code", text), ("autotune_backend", meta.get("backend_hash"))]
        yield None
        self._thread.bundle = None

    def _on_bundle(self, bundler: object) -> Hook:
        outcome = yield None
        parts = getattr(self._thread, "bundle", None)
        if outcome.error is None and parts is not None and replayed_call() is None:
            key = getattr(bundler, "_key", None)
            result = "hit" if outcome.result else "miss"
            self._report(self._found("bundled autotune cache", result, key, iter(parts)), None)

    # -- Triton --------------------------------------------------------------------------------------------------------

    def _on_triton_key(self, source: object, backend: object, options: object, env_vars: object) -> Hook:
        outcome = yield None
        if outcome.error is None:
            key = hashlib.sha256(str(outcome.result).encode()).hexdigest()
            self._thread.triton = key, list(_of_triton(source, backend, options, env_vars)), True

    def _on_triton_miss(self, *_: object, **__: object) -> Hook:
        known = getattr(self._thread, "triton", None)
        if known is not None:
            self._thread.triton = *known[:2], False
        yield None

    def _on_triton(self, *_: object, **__: object) -> Hook:
        yield None
        # Other processes make kernels without a lookup here.
        known, self._thread.triton = getattr(self._thread, "triton", None), None
        if known is not None and replayed_call() is None:
            key, parts, is_hit = known
            self._report(self._found("Triton cache", "hit" if is_hit else "miss", key, iter(parts)), None)

    # -- precompiled functions -----------------------------------------------------------------------------------------

    def _on_load(self, _cache: object, function: Any) -> Hook:
        outcome = yield None
        code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
        if code is not None and outcome.error is None:
            parts = [("precompile_function", function.__qualname__), ("precompile_line", code.co_firstlineno)]
            lookup = self._found("precompile cache", "miss" if outcome.result is None else "hit", None, iter(parts))
            self._thread.package = lookup, code

    def _on_package(self, _package: object, _function: object, entry: object = None, **_: object) -> Hook:
        outcome = yield None
        known = getattr(self._thread, "package", None)
        if known is not None and replayed_call() is None:
            self._thread.package = None
            lookup, code = known
            if outcome.error is not None:
                lookup = replace(lookup, result="refused", reason=str(outcome.error))
            self._report(lookup, code)

    def _on_compile(self, code: types.CodeType, _globals: object, values: object, *_: object, **__: object) -> Hook:
        """Report the loaded entries whose guards this call fails: torch compiles the function instead."""
        if replayed_call() is None:
            for entry in PRECOMPILE_CACHE.resolve(_ENTRIES)(code):
                failed = entry.guard_manager.check_verbose(values).verbose_code_parts
                if failed:
                    # Torch adds the line as a comment.
                    guard = in_user_terms(failed[0].partition("  # ")[0].strip())
                    reason = f"a guard of the saved function fails: {guard}"
                    self._report(self._found("precompile cache", "refused", None, iter(()), reason), code)
        yield None


def _part(name: str, value: object) -> str:
    text = str(value)
    return f"[{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:_DIGITS]}] {name}: {text}"


def _of_autotune(meta: Mapping[str, object], filename: str, configs: str) -> Iterator[Part]:
    """Yield the parts of the key for the best configuration of one kernel."""
    yield "autotune_code", filename.rpartition("/")[2]
    yield "autotune_configs", configs
    yield "autotune_backend", meta.get("backend_hash")
    yield "cache_key_tag", getattr(sys.modules.get("torch.compiler.config"), "cache_key_tag", "")


def _of_triton(source: Any, backend: Any, options: object, environment: Any) -> Iterator[Part]:
    """Yield the parts of the key for one compiled Triton kernel."""
    triton = sys.modules.get("triton")
    yield "triton_version", getattr(triton, "__version__", "?")
    yield "triton_backend", backend.hash()
    function = getattr(source, "fn", None)
    yield "triton_source", getattr(function, "cache_key", None) or source.hash()
    for name, value in dict(getattr(source, "signature", {}) or {}).items():
        yield f"triton_signature[{name}]", value
    names = list(getattr(function, "arg_names", ()))
    for place, value in dict(getattr(source, "constants", {}) or {}).items():
        index = place[0] if isinstance(place, tuple) and len(place) == 1 else place
        name = names[index] if isinstance(index, int) and index < len(names) else index
        yield f"triton_constant[{name}]", getattr(value, "cache_key", value)
    yield "triton_attributes", getattr(source, "attrs", None)
    for name, value in sorted(vars(options).items()):
        yield f"triton_option[{name}]", value
    for name, value in sorted(dict(environment).items()):
        yield f"triton_environment[{name}]", value
