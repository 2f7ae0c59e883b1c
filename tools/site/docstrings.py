"""Converts docstrings to Markdown, as an extension of Griffe."""

import re
from typing import Any

import griffe
from public_api import linked_names, public_names

# From a prompt to the next empty line; Markdown would read it as a quotation.
_EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.M)
# Methods that Keras calls, whose meaning Keras documents.
_HOOK = re.compile(
    r"on_(train|epoch|batch|test|predict)_\w+|set_model|(get|set)_state"
    r"|compute_\w+|(save|load)_own_variables|get_config|from_config"
)


class Docstrings(griffe.Extension):
    """Fences examples, links names to the reference, and leaves out hooks."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Leaves methods that Keras calls out of the reference."""
        del kwargs
        for name in filter(_HOOK.fullmatch, list(cls.members)):
            del cls.members[name]

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        del kwargs
        if obj.docstring:
            text = linked_names(obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"\n```pycon\n{found[0].rstrip()}\n```\n", text
            )

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Resolves public names as Python does.

        If a module and a function in it share a name, Python has the one that
        was imported last, the function; Griffe has the module.
        """
        del kwargs
        meant = []
        for path, names in public_names().items():
            module = pkg[path.split(".")[1:]] if "." in path else pkg
            for name in names:
                member = module.members[name]
                if isinstance(member, griffe.Alias):
                    member = member.target  # while Griffe's names hold
                if isinstance(member, griffe.Module):
                    meant.append((module, name, member[name]))
        for module, name, target in meant:
            module.members[name] = griffe.Alias(name, target, parent=module)
