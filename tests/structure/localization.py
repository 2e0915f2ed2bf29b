"""Moves the texts of the extension's ``package.json`` into ``package.nls.json``, from which VS Code takes translations.

``make generate`` runs it and replaces each text in ``package.json`` by a key. The functions have no side effects.
"""

from __future__ import annotations

from typing import Any

_TEXTS = {
    "title",
    "shortTitle",
    "label",
    "description",
    "markdownDescription",
    "enumDescriptions",
    "contents",
    "contextualTitle",
    "altText",
}
_OF_THE_EXTENSION = ("displayName", "description")
_NAMED = {"views", "viewsContainers", "body"}
"""Parts of the manifest in which ``name`` is a text; elsewhere it is an identifier."""
_UNTOUCHED = {"default", "defaultSnippets", "enum"}
_IDENTIFIERS = ("command", "id", "type", "view", "mode")


def localized(manifest: dict[str, Any], known: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest with keys instead of texts, and the text of each key.

    ``known`` has the texts of keys that are there already.
    """
    texts: dict[str, str] = {}

    def text(value: str, key: str) -> str:
        if value.startswith("%") and value.endswith("%"):
            key = value[1:-1]
            value = known[key]
        assert texts.setdefault(key, value) == value, f"two texts have the key {key}"
        return f"%{key}%"

    def walked(value: Any, path: str, part: str) -> Any:
        if isinstance(value, list):
            return [walked(each, f"{path}.{_name(each, index)}", part) for index, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        found = {}
        for name, each in value.items():
            is_text = name in _TEXTS or (name == "name" and part in _NAMED)
            if name in _UNTOUCHED:
                found[name] = each
            elif is_text and isinstance(each, str):
                found[name] = text(each, f"{path}.{name}")
            elif is_text and isinstance(each, list):
                found[name] = [text(one, f"{path}.{name}.{index}") for index, one in enumerate(each)]
            else:
                found[name] = walked(each, f"{path}.{name}", name if name in _NAMED else part)
        return found

    made = dict(manifest)
    for name in _OF_THE_EXTENSION:
        made[name] = text(manifest[name], name)
    for parts in ("contributes", "capabilities"):
        made[parts] = {part: walked(value, part, part) for part, value in manifest[parts].items()}
    return made, dict(sorted(texts.items()))


def _name(each: Any, index: int) -> str:
    if isinstance(each, dict):
        for identifier in _IDENTIFIERS:
            if isinstance(each.get(identifier), str):
                return str(each[identifier])
    return str(index)
