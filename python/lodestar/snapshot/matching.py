"""Matches the tables of a snapshot with the tables of a model.

Automatic names are numbered (`dynamic_embedding_3`), and the numbers change when
a model is built again. If such names differ between the two sides, tables of
one dim and dtype are matched by their order in the model instead, provided that
both sides have equally many.
"""

import re
from collections.abc import Collection, Mapping

from lodestar.optimizers.table_updates import GRADIENT_SUM

# Names that Keras and EmbeddingVariable derive from our classes.
_AUTOMATIC = re.compile(
    r"(embedding_variable|dynamic_embedding|id_table|id_lookup)(_\d+)?"
)


def match(
    saved: Mapping[str, str], here: Mapping[str, str], rename: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Returns saved name -> (name here, "name", "rename" or "structure").

    `saved` and `here` map names to kinds, in the order of the models; tables of
    one kind can take each other's rows. Tables without a match are left out. Two
    saved tables may share a name here.
    """
    found: dict[str, tuple[str, str]] = {}
    chosen = set(rename.values())
    automatic = [
        {name for name in names if _is_automatic(name) and name not in used}
        for names, used in ((saved, rename), (here, chosen))
    ]
    # If the names overlap only in part, they name different tables.
    shifted = not (automatic[0] <= automatic[1] or automatic[1] <= automatic[0])
    for name in saved:
        if name in rename:
            found[name] = (rename[name], "rename")
        elif name in here and not (shifted and _is_automatic(name)):
            found[name] = (name, "name")
    taken = {new for new, _ in found.values()}
    for kind in dict.fromkeys(saved.values()):
        left = _rest(saved, kind, found)
        wanted = _rest(here, kind, taken)
        if len(left) == len(wanted) and all(
            _is_automatic(a) or _is_automatic(b) for a, b in zip(left, wanted)
        ):
            for name, new in zip(left, wanted):
                found[name] = (new, "structure")
    # The table of an optimizer's gradient sums follows its own table.
    for name in saved:
        table = name.removesuffix(GRADIENT_SUM)
        if table != name and table in found:
            new, how = found[table]
            if new + GRADIENT_SUM in here:
                found.setdefault(name, (new + GRADIENT_SUM, how))
    return found


def _is_automatic(name: str) -> bool:
    return bool(_AUTOMATIC.fullmatch(name.removesuffix(GRADIENT_SUM)))


def _rest(
    kinds: Mapping[str, str], kind: str, matched: Collection[str]
) -> list[str]:
    return [
        name
        for name, other in kinds.items()
        if other == kind
        and name not in matched
        and not name.endswith(GRADIENT_SUM)
    ]
