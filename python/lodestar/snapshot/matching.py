"""Which table of a snapshot is which here: by name, then by structure.

Names that nobody gave are numbered, `dynamic_embedding_3`, and the number is
another one where the same model is made a second time. So where the two sides
have different ones of them, such tables are matched by their order in the model,
among those of one dim and dtype, if there are equally many on both sides.
"""

import re
from collections.abc import Collection, Mapping

from lodestar.optimizers.table_updates import GRADIENT_SUM

# Names of our classes, as Keras and EmbeddingVariable make them.
_AUTOMATIC = re.compile(
    r"(embedding_variable|dynamic_embedding|id_table|id_lookup)(_\d+)?"
)


def match(
    saved: Mapping[str, str], here: Mapping[str, str], rename: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Finds for tables of a snapshot those here.

    Args:
        saved: Name -> kind, in the order of the model, of those in the snapshot;
            those of one kind can take each other's rows.
        here: The same, of those here.
        rename: Name in the snapshot -> name here.

    Returns:
        Name in the snapshot -> (name here, "name", "rename" or "structure").
        What has no match is left out; two may have the same.
    """
    found: dict[str, tuple[str, str]] = {}
    chosen = set(rename.values())
    automatic = [
        {name for name in names if _is_automatic(name) and name not in used}
        for names, used in ((saved, rename), (here, chosen))
    ]
    # In part the same: a name is not that of the same table on both sides.
    shifted = not (automatic[0] <= automatic[1] or automatic[1] <= automatic[0])
    for name in saved:
        if name in rename:
            found[name] = (rename[name], "rename")
        elif name in here and not (shifted and _is_automatic(name)):
            found[name] = (name, "name")
    taken = {new for new, _ in found.values()}
    for kind in dict.fromkeys(saved.values()):
        left = _rest(saved, kind, found)
        wanting = _rest(here, kind, taken)
        if len(left) == len(wanting) and all(
            _is_automatic(a) or _is_automatic(b) for a, b in zip(left, wanting)
        ):
            for name, new in zip(left, wanting):
                found[name] = (new, "structure")
    # What an optimizer keeps for a table goes with the table.
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
